"""An agent that plays 400 moves and learns from them in small batches: of eight steps one is long."""

import torch
from torch import nn

ROUNDS, MOVES, BATCHES = 30, 400, 8

policy = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for _ in range(ROUNDS):
    state = torch.zeros(8)
    states, actions, rewards = [], [], []
    with torch.no_grad():
        for _ in range(MOVES):
            chosen = torch.distributions.Categorical(logits=policy(state)).sample()
            states.append(state)
            actions.append(chosen)
            state = (state * 0.9 + torch.randn(8) * 0.1).clamp(-1, 1)
            rewards.append(-state.pow(2).sum().item() - 0.01 * chosen.item())
    gain = torch.tensor(rewards)
    for states_, actions_, gain_ in zip(
        torch.stack(states).chunk(BATCHES), torch.stack(actions).chunk(BATCHES), gain.chunk(BATCHES), strict=True
    ):
        spread = torch.distributions.Categorical(logits=policy(states_))
        loss = -(spread.log_prob(actions_) * (gain_ - gain_.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

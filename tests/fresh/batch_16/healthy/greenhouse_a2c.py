"""Advantage actor-critic for many simulated greenhouses at once; a rollout is written into tensors made beforehand."""

import torch
from torch import nn

HOUSES, STATE, ACTIONS, HORIZON = 96, 16, 5, 12


class Greenhouses:
    """Heat and humidity drift; the levels of heating should keep them near a target."""

    def __init__(self):
        g = torch.Generator().manual_seed(1)
        self.mix = 0.95 * torch.linalg.qr(torch.randn(STATE, STATE, generator=g)).Q
        self.effect = 0.3 * torch.randn(ACTIONS, STATE, generator=g)
        self.state = torch.randn(HOUSES, STATE, generator=g)

    def step(self, action):
        self.state = self.state @ self.mix + self.effect[action] + 0.1 * torch.randn(HOUSES, STATE)
        return self.state, -self.state.square().mean(1)


class ActorCritic(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(STATE, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.heads = nn.Linear(width, ACTIONS + 1)

    def forward(self, state):
        out = self.heads(self.body(state))
        return out[..., :ACTIONS], out[..., ACTIONS]


@torch.no_grad()
def collect(model, houses, states, actions, rewards):
    state = houses.state
    for t in range(HORIZON):
        states[t] = state
        logits, _ = model(state)
        actions[t] = torch.multinomial(logits.softmax(1), 1).squeeze(1)
        state, rewards[t] = houses.step(actions[t])
    states[HORIZON] = state


@torch.no_grad()
def discounted(rewards, last, gamma=0.95):
    returns = torch.empty_like(rewards)
    for t in reversed(range(HORIZON)):
        last = rewards[t] + gamma * last
        returns[t] = last
    return returns


def main():
    torch.manual_seed(0)
    houses, model = Greenhouses(), ActorCritic()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=7e-4, foreach=True)
    states = torch.empty(HORIZON + 1, HOUSES, STATE)
    actions = torch.empty(HORIZON, HOUSES, dtype=torch.long)
    rewards = torch.empty(HORIZON, HOUSES)
    for update in range(400):
        collect(model, houses, states, actions, rewards)
        logits, values = model(states)
        returns = discounted(rewards, values[-1].detach())
        values, log_p = values[:-1], logits[:-1].log_softmax(2)
        advantage = (returns - values).detach()
        policy = -(log_p.gather(2, actions[..., None]).squeeze(2) * advantage).mean()
        entropy = -(log_p.exp() * log_p).sum(2).mean()
        loss = policy + 0.5 * (returns - values).square().mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        if update % 80 == 79:
            print(f"update {update + 1}: reward {rewards.mean().item():.3f} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()

"""Continuous control by two critics and a deterministic actor (TD3) on a swarm of double integrators."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
STATE, ACTION, BATCH, DISCOUNT = 12, 6, 128, 0.98


def mlp(inputs, outputs, *last):
    return nn.Sequential(
        nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs), *last
    )


class Critics(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = mlp(STATE + ACTION, 1), mlp(STATE + ACTION, 1)

    def forward(self, state, action):
        both = torch.cat([state, action], 1)
        return self.first(both), self.second(both)


class Agent:
    def __init__(self):
        self.actor, self.critics = mlp(STATE, ACTION, nn.Tanh()).to(device), Critics().to(device)
        self.old_actor, self.old_critics = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_steps = torch.optim.Adam(self.actor.parameters(), lr=3e-4, fused=True)
        self.critic_steps = torch.optim.Adam(self.critics.parameters(), lr=3e-4, fused=True)

    def target(self, reward, following):
        action = self.old_actor(following)
        action = (action + (0.2 * torch.randn_like(action)).clamp(-0.5, 0.5)).clamp(-1, 1)
        return reward + DISCOUNT * torch.minimum(*self.old_critics(following, action))

    def learn_critics(self, state, action, reward, following):
        with torch.no_grad():
            wanted = self.target(reward, following)
        first, second = self.critics(state, action)
        loss = F.mse_loss(first, wanted) + F.mse_loss(second, wanted)
        self.critic_steps.zero_grad()
        loss.backward()
        self.critic_steps.step()
        return loss.detach()

    def learn_actor(self, state):
        loss = -self.critics.first(torch.cat([state, self.actor(state)], 1)).mean()
        self.actor_steps.zero_grad()
        loss.backward(inputs=list(self.actor.parameters()))
        self.actor_steps.step()

    @torch.no_grad()
    def follow(self, rate=0.01):
        for old, new in ((self.old_actor, self.actor), (self.old_critics, self.critics)):
            torch._foreach_lerp_(list(old.parameters()), list(new.parameters()), rate)


def experience(count):
    """Places and speeds; an action is a push, the reward is to be near the origin."""
    state, action = torch.randn(count, STATE), torch.rand(count, ACTION) * 2 - 1
    speed = 0.95 * state[:, ACTION:] + 0.2 * action
    following = torch.cat([state[:, :ACTION] + 0.2 * speed, speed], 1)
    reward = -following[:, :ACTION].pow(2).mean(1, keepdim=True)
    return [tensor.to(device) for tensor in (state, action, reward, following)]


memory = experience(20_000)
agent = Agent()
for step in range(200):
    chosen = torch.randint(0, len(memory[0]), (BATCH,), device=device)
    batch = [column[chosen] for column in memory]
    loss = agent.learn_critics(*batch)
    if step % 2 == 0:
        agent.learn_actor(batch[0])
        agent.follow()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")

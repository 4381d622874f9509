"""TD3 on a cart that must stop at a mark; transitions live in preallocated tensors, environments step together."""

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Settings:
    copies: int = 8
    capacity: int = 20_000
    batch: int = 256
    steps: int = 900
    warmup: int = 60
    gamma: float = 0.98
    tau: float = 0.005
    delay: int = 2


class Carts:
    def __init__(self, copies):
        self.state = torch.zeros(copies, 4)
        self.t = torch.zeros(copies)
        self.reset(torch.ones(copies, dtype=torch.bool))

    def reset(self, which):
        fresh = torch.cat([torch.rand(len(self.state), 2) * 4 - 2, torch.zeros(len(self.state), 2)], dim=1)
        self.state = torch.where(which[:, None], fresh, self.state)
        self.t = torch.where(which, torch.zeros(()), self.t)

    def step(self, force):
        position, velocity = self.state[:, :2], self.state[:, 2:]
        velocity = 0.95 * velocity + 0.1 * force
        position = position + 0.1 * velocity
        self.state = torch.cat([position, velocity], dim=1)
        self.t += 1
        reward = -position.norm(dim=1) - 0.05 * force.square().sum(1)
        over = self.t >= 100
        following = self.state
        self.reset(over)
        return following, reward


class Ring:
    def __init__(self, capacity, sizes):
        self.data = torch.empty(capacity, sum(sizes))
        self.sizes, self.capacity, self.size, self.at = sizes, capacity, 0, 0

    def add(self, *parts):
        rows = torch.cat(parts, dim=1)
        self.data[self.at : self.at + len(rows)] = rows
        self.at = (self.at + len(rows)) % self.capacity
        self.size = min(self.size + len(rows), self.capacity)

    def sample(self, count):
        return self.data[torch.randint(self.size, (count,))].split(self.sizes, dim=1)


class TwinQ(nn.Module):
    """Two critics in one batched product per layer."""

    def __init__(self, inputs, width=256):
        super().__init__()
        sizes = [(inputs, width), (width, width), (width, 1)]
        self.weights = nn.ParameterList(torch.randn(2, a, b) / a**0.5 for a, b in sizes)
        self.biases = nn.ParameterList(torch.zeros(2, 1, b) for _, b in sizes)

    def forward(self, x):
        h = x.expand(2, -1, -1)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            h = F.relu(h) if i < 2 else h
        return h


def main(s=Settings()):
    torch.manual_seed(0)
    env, ring = Carts(s.copies), Ring(s.capacity, [4, 2, 1, 4])
    actor = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2), nn.Tanh())
    critic = TwinQ(6)
    old_actor, old_critic = copy.deepcopy(actor).requires_grad_(False), copy.deepcopy(critic).requires_grad_(False)
    pairs = ([*old_actor.parameters(), *old_critic.parameters()], [*actor.parameters(), *critic.parameters()])
    actor_opt, critic_opt = (torch.optim.Adam(m.parameters(), lr=3e-4) for m in (actor, critic))
    rewards = torch.zeros(())
    for step in range(s.steps):
        state = env.state
        with torch.no_grad():
            action = (actor(state) + 0.1 * torch.randn(s.copies, 2)).clamp_(-1, 1)
        following, reward = env.step(action)
        ring.add(state, action, reward[:, None], following)
        rewards += reward.mean()
        if step < s.warmup:
            continue
        state, action, reward, following = ring.sample(s.batch)
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(action)).clamp_(-0.5, 0.5)
            then = (old_actor(following) + noise).clamp_(-1, 1)
            target = reward + s.gamma * old_critic(torch.cat([following, then], dim=1)).amin(0)
        loss = F.mse_loss(critic(torch.cat([state, action], dim=1)), target.expand(2, -1, -1))
        critic_opt.zero_grad()
        loss.backward()
        critic_opt.step()
        if step % s.delay == 0:
            critic.requires_grad_(False)
            value = -critic(torch.cat([state, actor(state)], dim=1))[0].mean()
            actor_opt.zero_grad()
            value.backward()
            actor_opt.step()
            critic.requires_grad_(True)
            with torch.no_grad():
                torch._foreach_lerp_(*pairs, s.tau)
        if step % 300 == 299:
            print(f"step {step + 1}: mean reward {rewards.item() / 300:.3f}")
            rewards.zero_()


if __name__ == "__main__":
    main()

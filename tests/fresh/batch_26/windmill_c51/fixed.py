"""Pitch of wind turbines learnt by a distributional DQN (C51) in gusts simulated for many turbines at once."""

from __future__ import annotations

import argparse
import copy
import math

import torch
from torch import Tensor, nn


class Gusts:
    """Turbines in wind: the action turns the blades, the reward is power less wear."""

    def __init__(self, count: int, sites: int = 16) -> None:
        self.count = count
        self.state = torch.randn(count, sites)
        self.age = torch.zeros(count)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle = (action.float() - 3) / 3
        wind = self.state[:, 0]
        reward = torch.cos(wind - angle) - 0.1 * angle.abs()
        self.state = 0.9 * self.state.roll(1, dims=1) + 0.3 * torch.randn_like(self.state)
        self.age += 1
        done = (torch.rand(self.count) < 0.01) | (self.age > 200)
        self.state = torch.where(done[:, None], torch.randn_like(self.state), self.state)
        self.age = torch.where(done, torch.zeros_like(self.age), self.age)
        return self.state.clone(), reward, done.float()


class Replay:
    def __init__(self, capacity: int, sites: int = 16) -> None:
        self.capacity, self.at, self.full = capacity, 0, False
        self.states = torch.zeros(capacity, sites)
        self.following = torch.zeros(capacity, sites)
        self.actions = torch.zeros(capacity, dtype=torch.long)
        self.rewards = torch.zeros(capacity)
        self.dones = torch.zeros(capacity)

    def add(self, states: Tensor, actions: Tensor, rewards: Tensor, following: Tensor, dones: Tensor) -> None:
        places = slice(self.at, self.at + len(states))
        self.states[places], self.following[places] = states, following
        self.actions[places], self.rewards[places], self.dones[places] = actions, rewards, dones
        self.at = (self.at + len(states)) % self.capacity
        self.full |= self.at == 0

    def sample(self, size: int) -> tuple[Tensor, ...]:
        chosen = torch.randint(0, self.capacity if self.full else self.at, (size,))
        stored = (self.states, self.actions, self.rewards, self.following, self.dones)
        return tuple(column[chosen] for column in stored)


class CategoricalNet(nn.Module):
    def __init__(self, sites: int, actions: int, atoms: int, width: int) -> None:
        super().__init__()
        self.actions, self.atoms = actions, atoms
        self.body = nn.Sequential(
            nn.Linear(sites, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.value = nn.Linear(width, atoms)
        self.advantage = nn.Linear(width, actions * atoms)

    def forward(self, states: Tensor) -> Tensor:
        hidden = self.body(states)
        advantage = self.advantage(hidden).view(-1, self.actions, self.atoms)
        scores = self.value(hidden).unsqueeze(1) + advantage - advantage.mean(dim=1, keepdim=True)
        return scores.log_softmax(dim=2)


@torch.no_grad()
def project(target_net: CategoricalNet, support: Tensor, reward: Tensor, following: Tensor, done: Tensor) -> Tensor:
    """The distribution of returns one step ahead, laid back onto the atoms."""
    discount, atoms = 0.98, len(support)
    low, high = support[0].item(), support[-1].item()
    step = (high - low) / (atoms - 1)
    rows = torch.arange(len(reward))
    probabilities = target_net(following).exp()
    best = (probabilities * support).sum(dim=2).argmax(dim=1)
    chosen = probabilities[rows, best]
    target = torch.zeros_like(chosen)
    value = (reward[:, None] + discount * (1 - done[:, None]) * support).clamp(low, high)
    place = (value - low) / step
    below = place.floor().long().clamp(max=atoms - 2)
    share = place - below
    target.scatter_add_(1, below, (1 - share) * chosen)
    target.scatter_add_(1, below + 1, share * chosen)
    return target


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turbines", type=int, default=32)
    parser.add_argument("--steps", type=int, default=650)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--atoms", type=int, default=51)
    parser.add_argument("--width", type=int, default=320)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()
    torch.manual_seed(2)

    world = Gusts(args.turbines)
    replay = Replay(args.turbines * 256)
    net = CategoricalNet(16, 7, args.atoms, args.width)
    target_net = copy.deepcopy(net).requires_grad_(False)
    support = torch.linspace(-20, 50, args.atoms)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr, eps=1e-5)
    states = world.state.clone()

    for step in range(args.steps):
        with torch.no_grad():
            values = (net(states).exp() * support).sum(dim=2)
        explore = torch.rand(args.turbines) < 0.05 + 0.95 * math.exp(-step / 150)
        actions = torch.where(explore, torch.randint(0, 7, (args.turbines,)), values.argmax(dim=1))
        following, rewards, dones = world.step(actions)
        replay.add(states, actions, rewards, following, dones)
        states = following

        seen, taken, reward, after, done = replay.sample(args.batch_size)
        target = project(target_net, support, reward, after, done)
        predicted = net(seen)[torch.arange(args.batch_size), taken]
        loss = -(target * predicted).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            target_net.load_state_dict(net.state_dict())
            print(f"step {step:4d}  loss {loss.item():.3f}  reward {rewards.mean().item():.3f}")


if __name__ == "__main__":
    main()

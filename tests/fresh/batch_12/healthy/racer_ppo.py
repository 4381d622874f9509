"""Proximal policy optimisation for a car on a ring track; all cars move at once as tensors."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Hyper:
    cars: int = 128
    horizon: int = 32
    iterations: int = 40
    epochs: int = 4
    minibatch: int = 1024
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    entropy: float = 0.005
    lr: float = 5e-4


class Track:
    """A ring with radius one. Actions are throttle and steering; leaving the road costs and resets."""

    def __init__(self, cars):
        self.state = torch.zeros(cars, 4)
        self.reset(torch.ones(cars, dtype=torch.bool))

    def reset(self, which):
        angle = torch.rand(len(which)) * 6.2832
        fresh = torch.stack([angle.cos(), angle.sin(), angle + 1.5708, torch.full_like(angle, 0.2)], dim=1)
        self.state = torch.where(which[:, None], fresh, self.state)

    def observe(self):
        x, y, heading, speed = self.state.unbind(1)
        radius, along = torch.hypot(x, y), torch.atan2(y, x) + 1.5708
        error = heading - along
        return torch.stack([radius - 1, error.sin(), error.cos(), speed, speed * error.sin()], dim=1)

    def step(self, actions):
        throttle, steer = actions.tanh().unbind(1)
        x, y, heading, speed = self.state.unbind(1)
        speed = (speed + 0.05 * throttle).clamp(0, 1)
        heading = heading + 0.4 * steer * speed
        x, y = x + 0.1 * speed * heading.cos(), y + 0.1 * speed * heading.sin()
        self.state = torch.stack([x, y, heading, speed], dim=1)
        seen = self.observe()
        off = seen[:, 0].abs() > 0.25
        reward = speed * seen[:, 2] - 0.5 * seen[:, 0].abs() - 2.0 * off
        self.reset(off)
        return reward, off


class Policy(nn.Module):
    def __init__(self, inputs, actions, width):
        super().__init__()
        self.actor = self.stack(inputs, width, actions)
        self.critic = self.stack(inputs, width, 1)
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))

    @staticmethod
    def stack(inputs, width, outputs):
        return nn.Sequential(
            nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)
        )

    def log_prob(self, mean, actions):
        z = (actions - mean) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std).sum(1)


@torch.no_grad()
def collect(policy, track, hyper):
    """Fills tensors of the whole horizon in place."""
    seen = torch.empty(hyper.horizon, hyper.cars, 5)
    actions = torch.empty(hyper.horizon, hyper.cars, 2)
    rewards, ended = torch.empty(2, hyper.horizon, hyper.cars).unbind(0)
    std = policy.log_std.exp()
    for t in range(hyper.horizon):
        seen[t] = track.observe()
        actions[t] = policy.actor(seen[t]) + std * torch.randn(hyper.cars, 2)
        rewards[t], ended[t] = track.step(actions[t])
    flat = torch.cat([seen.flatten(0, 1), track.observe()])
    values = policy.critic(flat).view(hyper.horizon + 1, hyper.cars)
    old = policy.log_prob(policy.actor(flat[: -hyper.cars]), actions.flatten(0, 1))
    advantages, carried = torch.empty_like(rewards), torch.zeros(hyper.cars)
    for t in reversed(range(hyper.horizon)):
        going = 1 - ended[t]
        delta = rewards[t] + hyper.gamma * going * values[t + 1] - values[t]
        carried = delta + hyper.gamma * hyper.lam * going * carried
        advantages[t] = carried
    returns = (advantages + values[:-1]).flatten()
    return flat[: -hyper.cars], actions.flatten(0, 1), old, advantages.flatten(), returns, rewards.mean()


def improve(policy, optimizer, batch, hyper):
    seen, actions, old, advantages, returns, _ = batch
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    for _ in range(hyper.epochs):
        for rows in torch.randperm(len(seen)).split(hyper.minibatch):
            ratio = (policy.log_prob(policy.actor(seen[rows]), actions[rows]) - old[rows]).exp()
            gain = torch.min(
                ratio * advantages[rows], ratio.clamp(1 - hyper.clip, 1 + hyper.clip) * advantages[rows]
            ).mean()
            value_loss = F.mse_loss(policy.critic(seen[rows]).squeeze(1), returns[rows])
            loss = 0.5 * value_loss - gain - hyper.entropy * policy.log_std.sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--seed", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    hyper = Hyper()
    policy, track = Policy(5, 2, args.width), Track(hyper.cars)
    optimizer = torch.optim.Adam(policy.parameters(), lr=hyper.lr, fused=True)
    for iteration in range(hyper.iterations):
        batch = collect(policy, track, hyper)
        improve(policy, optimizer, batch, hyper)
        if iteration % 10 == 9:
            print(f"iteration {iteration} mean reward {batch[-1].item():.4f}")


if __name__ == "__main__":
    main()

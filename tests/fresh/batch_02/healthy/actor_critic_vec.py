"""Advantage actor-critic in vectorised environments; no data loader."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


@dataclass
class Args:
    envs: int = 256
    horizon: int = 8
    updates: int = 200
    gamma: float = 0.97
    lr: float = 1e-3
    entropy: float = 0.01
    seed: int = 543


class Balancers:
    """Poles on carts, simplified; all at once in numpy."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.uniform(-0.05, 0.05, (n, 4))

    def observe(self):
        return self.state.astype(np.float32)

    def step(self, actions):
        x, v, angle, spin = self.state.T
        push = np.where(actions == 1, 1.0, -1.0)
        spin = spin + 0.05 * (9.8 * np.sin(angle) - push * np.cos(angle))
        angle = angle + 0.05 * spin
        v = v + 0.05 * push
        self.state = np.stack([x + 0.05 * v, v, angle, spin], 1)
        done = (np.abs(angle) > 0.4) | (np.abs(x) > 2.4)
        self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        return self.observe(), np.where(done, -1.0, 0.1).astype(np.float32), done.astype(np.float32)


class Policy(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.affine = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.action_head, self.value_head = nn.Linear(width, 2), nn.Linear(width, 1)

    def forward(self, x):
        h = self.affine(x)
        return self.action_head(h), self.value_head(h).squeeze(-1)


def play(args, env, model, obs):
    seen, actions, rewards, dones = [], [], [], []
    for _ in range(args.horizon):
        with torch.no_grad():
            logits, _ = model(obs)
        action = Categorical(logits=logits, validate_args=False).sample()
        seen.append(obs)
        actions.append(action)
        following, reward, done = env.step(action.numpy())
        rewards.append(torch.from_numpy(reward))
        dones.append(torch.from_numpy(done))
        obs = torch.from_numpy(following)
    return obs, torch.stack(seen), torch.stack(actions), torch.stack(rewards), torch.stack(dones)


def main(args):
    torch.manual_seed(args.seed)
    env, model = Balancers(args.envs, args.seed), Policy()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    obs, running = torch.from_numpy(env.observe()), 0.0
    for update in range(1, args.updates + 1):
        obs, seen, actions, rewards, dones = play(args, env, model, obs)
        with torch.no_grad():
            value = model(obs)[1]
        returns = torch.empty_like(rewards)
        for t in reversed(range(args.horizon)):
            value = rewards[t] + args.gamma * value * (1 - dones[t])
            returns[t] = value
        logits, values = model(seen)
        dist = Categorical(logits=logits, validate_args=False)
        advantage = returns - values
        policy_loss = -(dist.log_prob(actions) * advantage.detach()).mean()
        loss = policy_loss + nn.functional.smooth_l1_loss(values, returns) - args.entropy * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running = 0.95 * running + 0.05 * rewards.mean().item()
        if update % 50 == 0:
            print(f"Update {update}\tAverage reward: {running:.3f}")


if __name__ == "__main__":
    main(Args())

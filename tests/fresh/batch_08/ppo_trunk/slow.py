"""PPO in a little world that is seen as a picture: the policy and the value share a convolutional trunk."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class Args:
    envs: int = 32
    horizon: int = 32
    iterations: int = 16
    epochs: int = 3
    minibatch: int = 64
    gamma: float = 0.97
    lam: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    lr: float = 5e-4


class Gardens:
    """A walker on a field of 12 x 12 picks fruit and keeps off thorns, in many fields at once."""

    moves = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])

    def __init__(self, count, seed=0, size=12):
        self.rng, self.count, self.size = np.random.default_rng(seed), count, size
        self.field = np.zeros((count, 2, size, size), dtype=np.float32)
        self.place = np.zeros((count, 2), dtype=int)
        self.age = np.zeros(count, dtype=int)
        self.reset(np.arange(count))

    def reset(self, which):
        things = self.rng.random((len(which), self.size, self.size))
        self.field[which, 0], self.field[which, 1] = things < 0.12, things > 0.92
        self.place[which], self.age[which] = self.size // 2, 0

    def observe(self):
        walker = np.zeros((self.count, 1, self.size, self.size), dtype=np.float32)
        walker[np.arange(self.count), 0, self.place[:, 0], self.place[:, 1]] = 1
        return torch.from_numpy(np.concatenate([self.field, walker], 1))

    def step(self, actions):
        rows = np.arange(self.count)
        self.place = (self.place + self.moves[actions]).clip(0, self.size - 1)
        y, x = self.place.T
        reward = self.field[rows, 0, y, x] - self.field[rows, 1, y, x] - 0.01
        self.field[rows, 0, y, x] = 0
        self.age += 1
        done = self.age >= 50
        self.reset(np.flatnonzero(done))
        return self.observe(), torch.from_numpy(reward).float(), torch.from_numpy(done).float()


class Agent(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * 36, 128),
            nn.ReLU(),
        )
        self.actor, self.critic = nn.Linear(128, 4), nn.Linear(128, 1)

    def get_value(self, x):
        return self.critic(self.trunk(x)).squeeze(-1)

    def get_action_and_value(self, x, action=None):
        dist = Categorical(logits=self.actor(self.trunk(x)))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action), dist.entropy(), self.get_value(x)


@torch.no_grad()
def rollout(agent, env, obs, args):
    steps = []
    for _ in range(args.horizon):
        action, logprob, _, value = agent.get_action_and_value(obs)
        following, reward, done = env.step(action.numpy())
        steps.append((obs, action, logprob, value, reward, done))
        obs = following
    states, actions, logprobs, values, rewards, dones = (torch.stack(part) for part in zip(*steps))
    advantages, last, after = torch.zeros_like(rewards), 0.0, agent.get_value(obs)
    for t in reversed(range(args.horizon)):
        alive = 1 - dones[t]
        last = rewards[t] + args.gamma * after * alive - values[t] + args.gamma * args.lam * alive * last
        advantages[t], after = last, values[t]
    batch = (states, actions, logprobs, advantages, advantages + values)
    return obs, rewards.mean().item(), [part.flatten(0, 1) for part in batch]


def update(agent, optimizer, batch, args):
    states, actions, old, advantages, returns = batch
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    for _ in range(args.epochs):
        for index in torch.randperm(len(states)).split(args.minibatch):
            _, logprob, entropy, value = agent.get_action_and_value(states[index], actions[index])
            ratio = (logprob - old[index]).exp()
            clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
            policy = -torch.min(ratio * advantages[index], clipped * advantages[index]).mean()
            loss = policy + 0.5 * (value - returns[index]).pow(2).mean() - args.entropy * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main():
    args = Args()
    torch.manual_seed(0)
    env, agent = Gardens(args.envs), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.lr, eps=1e-5, fused=True)
    obs = env.observe()
    for iteration in range(args.iterations):
        obs, reward, batch = rollout(agent, env, obs, args)
        update(agent, optimizer, batch, args)
        print(f"iteration {iteration}: reward a step {reward:.4f}")


if __name__ == "__main__":
    main()

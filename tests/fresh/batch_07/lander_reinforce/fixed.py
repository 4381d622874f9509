"""REINFORCE with a baseline on a small lander: one episode, one update."""

import argparse
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class Lander:
    """Keep a craft near the pad with three engines; the episode has a fixed length."""

    actions, observations = 4, 6

    def __init__(self, length, seed):
        self.length = length
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.t = 0
        self.state = self.rng.normal(0, 0.4, 6).astype(np.float32)
        return self.state

    def step(self, action):
        x, y, vx, vy, tilt, spin = self.state
        vy += -0.02 + (0.05 if action == 2 else 0.0)
        spin += (0.02 if action == 1 else 0.0) - (0.02 if action == 3 else 0.0)
        tilt = np.clip(tilt + spin * 0.1, -1, 1)
        vx += 0.03 * tilt
        self.state = np.array(
            [np.clip(x + 0.05 * vx, -2, 2), np.clip(y + 0.05 * vy, -2, 2), 0.99 * vx, 0.99 * vy, tilt, 0.95 * spin],
            dtype=np.float32,
        )
        self.t += 1
        reward = 1.0 - abs(self.state[0]) - abs(self.state[1]) - 0.3 * abs(tilt) - (0.05 if action else 0.0)
        return self.state, float(reward), self.t >= self.length


class Policy(nn.Module):
    def __init__(self, observations, actions, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, actions)

    def forward(self, state):
        return self.pi(self.body(state))

    @torch.no_grad()
    def act(self, state):
        return int(torch.multinomial(torch.softmax(self(state), -1), 1))


class Agent:
    def __init__(self, env, args):
        self.env, self.gamma = env, args.gamma
        self.policy = Policy(env.observations, env.actions)
        self.baseline = nn.Sequential(nn.Linear(env.observations, 64), nn.Tanh(), nn.Linear(64, 1))
        self.optimizer = torch.optim.Adam([*self.policy.parameters(), *self.baseline.parameters()], lr=args.lr)

    def rollout(self):
        states, actions, rewards = [], [], []
        state, done = self.env.reset(), False
        while not done:
            action = self.policy.act(torch.from_numpy(state))
            states.append(state)
            actions.append(action)
            state, reward, done = self.env.step(action)
            rewards.append(reward)
        return torch.from_numpy(np.stack(states)), torch.tensor(actions), rewards

    def discounted(self, rewards):
        returns, g = [], 0.0
        for r in reversed(rewards):
            g = r + self.gamma * g
            returns.append(g)
        return torch.tensor(returns[::-1])

    def update(self):
        states, actions, rewards = self.rollout()
        returns = self.discounted(rewards)
        values = self.baseline(states).squeeze(-1)
        advantages = returns - values.detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        distribution = Categorical(logits=self.policy(states))
        loss = -(distribution.log_prob(actions) * advantages).mean()
        loss = loss + 0.5 * (returns - values).pow(2).mean() - 0.01 * distribution.entropy().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return sum(rewards)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=450)
    parser.add_argument("--length", type=int, default=400)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    torch.manual_seed(17)
    torch.set_num_threads(1)
    agent = Agent(Lander(args.length, seed=17), args)
    recent = deque(maxlen=20)
    for episode in range(1, args.episodes + 1):
        recent.append(agent.update())
        if episode % 50 == 0:
            print(f"episode {episode}: mean score {sum(recent) / len(recent):.1f}")


if __name__ == "__main__":
    main()

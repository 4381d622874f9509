"""A dueling double DQN with prioritised replay, on an environment of noisy counters."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class SumTree:
    """Priorities in a binary tree whose nodes hold the sums of their children."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.depth = int(np.log2(capacity))
        self.nodes = np.zeros(2 * capacity)

    def update(self, indices, priorities):
        node = indices + self.capacity
        self.nodes[node] = priorities
        for _ in range(self.depth):
            node = node // 2
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def find(self, masses):
        node = np.ones(len(masses), dtype=np.int64)
        for _ in range(self.depth):
            node = 2 * node
            right = masses > self.nodes[node]
            masses = np.where(right, masses - self.nodes[node], masses)
            node = node + right
        return node - self.capacity


class PrioritizedReplay:
    def __init__(self, capacity, state_dim, rng, alpha=0.6):
        self.capacity, self.alpha, self.rng = capacity, alpha, rng
        self.tree = SumTree(capacity)
        self.state = np.zeros((capacity, state_dim), dtype=np.float32)
        self.following = np.zeros((capacity, state_dim), dtype=np.float32)
        self.action, self.reward = np.zeros(capacity, dtype=np.int64), np.zeros(capacity, dtype=np.float32)
        self.position, self.size, self.largest = 0, 0, 1.0

    def add(self, state, action, reward, following):
        rows = (self.position + np.arange(len(state))) % self.capacity
        self.state[rows], self.action[rows], self.reward[rows], self.following[rows] = state, action, reward, following
        self.tree.update(rows, np.full(len(rows), self.largest**self.alpha))
        self.position = (self.position + len(rows)) % self.capacity
        self.size = min(self.size + len(rows), self.capacity)

    def sample(self, batch_size, beta):
        segment = self.tree.nodes[1] / batch_size
        masses = (np.arange(batch_size) + self.rng.random(batch_size)) * segment
        rows = np.minimum(self.tree.find(masses), self.size - 1)
        chance = self.tree.nodes[rows + self.capacity] / self.tree.nodes[1]
        weights = (self.size * chance) ** -beta
        weights = (weights / weights.max()).astype(np.float32)
        parts = (self.state[rows], self.action[rows], self.reward[rows], self.following[rows], weights)
        return rows, [torch.from_numpy(part) for part in parts]

    def update_priorities(self, rows, errors):
        priorities = errors + 1e-6
        self.largest = max(self.largest, priorities.max())
        self.tree.update(rows, priorities**self.alpha)


class DuelingNetwork(nn.Module):
    def __init__(self, state_dim, actions, hidden=160):
        super().__init__()
        self.feature = nn.Sequential(nn.Linear(state_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value, self.advantage = nn.Linear(hidden, 1), nn.Linear(hidden, actions)

    def forward(self, state):
        h = self.feature(state)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(dim=1, keepdim=True)


class Counters:
    """Sixteen walks at once; the right action pulls a coordinate back to zero."""

    def __init__(self, rng, envs=16, dims=8):
        self.rng, self.dims = rng, dims
        self.state = rng.standard_normal((envs, dims)).astype(np.float32)

    def step(self, action):
        state = self.state + 0.1 * self.rng.standard_normal(self.state.shape).astype(np.float32)
        state[np.arange(len(state)), action] *= 0.5
        self.state = state
        return state, -np.abs(state).mean(axis=1)


def main(frames=860, batch_size=256, gamma=0.97):
    torch.manual_seed(100)
    rng = np.random.default_rng(100)
    env, memory = Counters(rng), PrioritizedReplay(2**14, 8, rng)
    online = DuelingNetwork(8, 8)
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-4, fused=True)
    state, rewards = env.state, []
    for frame in range(frames):
        with torch.no_grad():
            action = online(torch.from_numpy(state)).argmax(dim=1).numpy()
        action = np.where(rng.random(len(action)) < 0.1, rng.integers(0, 8, len(action)), action)
        following, reward = env.step(action)
        memory.add(state, action, reward, following)
        state = following
        rewards.append(reward.mean())
        if memory.size < 512:
            continue
        rows, (states, actions, gains, followings, weights) = memory.sample(batch_size, beta=0.4 + 0.6 * frame / frames)
        with torch.no_grad():
            best = online(followings).argmax(dim=1, keepdim=True)
            wanted = gains + gamma * target(followings).gather(1, best).squeeze(1)
        q = online(states).gather(1, actions[:, None]).squeeze(1)
        loss = (weights * F.smooth_l1_loss(q, wanted, reduction="none")).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory.update_priorities(rows, (q - wanted).detach().abs().numpy().astype(np.float64))
        if frame % 100 == 0:
            target.load_state_dict(online.state_dict())
            print(f"frame {frame}: loss {loss.item():.5f} reward {np.mean(rewards[-50:]):.4f}")


if __name__ == "__main__":
    main()

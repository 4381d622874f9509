"""Deep Q-learning on many mazes at once, with a preallocated ring of transitions."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    envs: int = 64
    side: int = 9
    horizon: int = 60
    capacity: int = 30000
    batch_size: int = 512
    warmup: int = 60
    iterations: int = 1600
    target_every: int = 100
    gamma: float = 0.97
    lr: float = 5e-4


class Mazes:
    """The same maze for all environments; they are stepped together."""

    moves = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])

    def __init__(self, config, rng):
        self.config, self.rng = config, rng
        walls = rng.random((config.side, config.side)) < 0.2
        walls[0, 0] = walls[-1, -1] = False
        self.walls = np.pad(walls, 1, constant_values=True)
        self.position = np.ones((config.envs, 2), dtype=np.int64)
        self.age = rng.integers(0, config.horizon, config.envs)

    def observe(self):
        rows, columns = self.position.T
        near = [self.walls[rows + dr, columns + dc] for dr in (-1, 0, 1) for dc in (-1, 0, 1)]
        goal = (self.config.side - self.position) / self.config.side
        return np.concatenate([np.stack(near, 1), goal, self.position / self.config.side], 1).astype(np.float32)

    def step(self, actions):
        moved = self.position + self.moves[actions]
        blocked = self.walls[moved[:, 0], moved[:, 1]]
        self.position = np.where(blocked[:, None], self.position, moved)
        solved = (self.position == self.config.side).all(1)
        self.age += 1
        rewards = np.where(solved, 1.0, -0.01 - 0.02 * blocked).astype(np.float32)
        observations = self.observe()
        over = solved | (self.age >= self.config.horizon)
        self.position[over], self.age[over] = 1, 0
        return observations, rewards, solved


class RingBuffer:
    def __init__(self, capacity, width):
        self.states, self.following = torch.empty(capacity, width), torch.empty(capacity, width)
        self.actions = torch.empty(capacity, dtype=torch.int64)
        self.rewards, self.finals = torch.empty(capacity), torch.empty(capacity)
        self.capacity, self.size, self.head = capacity, 0, 0

    def extend(self, *columns):
        n = len(columns[0])
        slots = (self.head + torch.arange(n)) % self.capacity
        for store, values in zip((self.states, self.actions, self.rewards, self.following, self.finals), columns):
            store[slots] = torch.from_numpy(values).to(store.dtype)
        self.head = (self.head + n) % self.capacity
        self.size = min(self.size + n, self.capacity)

    def sample(self, count):
        rows = torch.randint(self.size, (count,))
        return (store[rows] for store in (self.states, self.actions, self.rewards, self.following, self.finals))


def q_network(inputs, actions):
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, actions))


def main():
    config = Config()
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    mazes = Mazes(config, rng)
    state = mazes.observe()
    online, target = q_network(state.shape[1], 4), q_network(state.shape[1], 4).requires_grad_(False)
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=config.lr, fused=True)
    buffer = RingBuffer(config.capacity, state.shape[1])
    solved_total = 0
    for iteration in range(1, config.iterations + 1):
        with torch.inference_mode():
            actions = online(torch.from_numpy(state)).argmax(1).numpy()
        explore = rng.random(config.envs) < max(0.05, 1 - iteration / 800)
        actions = np.where(explore, rng.integers(0, 4, config.envs), actions)
        following, rewards, solved = mazes.step(actions)
        buffer.extend(state, actions, rewards, following, solved)
        state = mazes.observe()
        solved_total += int(solved.sum())
        if iteration <= config.warmup:
            continue
        states, chosen, reward, next_states, finals = buffer.sample(config.batch_size)
        with torch.no_grad():
            best = online(next_states).argmax(1, keepdim=True)
            value = reward + config.gamma * (1 - finals) * target(next_states).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(online(states).gather(1, chosen[:, None]).squeeze(1), value)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if iteration % config.target_every == 0:
            target.load_state_dict(online.state_dict())
        if iteration % 400 == 0:
            print(f"iteration {iteration}: loss {loss.item():.4f} solved {solved_total}")


if __name__ == "__main__":
    main()

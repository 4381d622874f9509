"""Deep Q-learning for the dispatch of an elevator: where it goes next, given who waits on which floor."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    floors: int = 12
    arrivals: float = 0.4
    memory: int = 5000
    warmup: int = 500
    steps: int = 1000
    batch_size: int = 256
    hidden: int = 384
    gamma: float = 0.97
    lr: float = 3e-4
    epsilon: float = 0.2
    copy_every: int = 100
    seed: int = 83


class Elevator:
    """One cabin. It moves down, stays and opens, or moves up; each waiting person costs a little."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.rng = np.random.default_rng(config.seed)
        self.reset()

    def reset(self) -> np.ndarray:
        self.floor = 0
        self.clock = 0
        self.waiting = np.zeros(self.config.floors, dtype=np.float32)
        return self.state()

    def state(self) -> np.ndarray:
        place = np.zeros(self.config.floors, dtype=np.float32)
        place[self.floor] = 1.0
        return np.concatenate([place, self.waiting / 5, self.waiting > 0, [self.clock / 200]]).astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        self.clock += 1
        if action == 1:
            self.waiting[self.floor] = 0
        self.floor = int(np.clip(self.floor + action - 1, 0, self.config.floors - 1))
        if self.rng.random() < self.config.arrivals:
            self.waiting[self.rng.integers(self.config.floors)] += 1
        return self.state(), -float(self.waiting.sum()) / 10, self.clock == 200


class Memory:
    def __init__(self, size: int, width: int) -> None:
        self.states = torch.zeros(size, width)
        self.following = torch.zeros(size, width)
        self.actions = torch.zeros(size, dtype=torch.long)
        self.rewards = torch.zeros(size)
        self.ended = torch.zeros(size)
        self.size, self.count = size, 0

    def add(self, state: np.ndarray, action: int, reward: float, following: np.ndarray, ended: bool) -> None:
        slot = self.count % self.size
        self.states[slot] = torch.from_numpy(state)
        self.following[slot] = torch.from_numpy(following)
        self.actions[slot], self.rewards[slot], self.ended[slot] = action, reward, float(ended)
        self.count += 1

    def sample(self, count: int) -> tuple[torch.Tensor, ...]:
        chosen = torch.randint(0, min(self.count, self.size), (count,))
        parts = (self.states, self.actions, self.rewards, self.following, self.ended)
        return tuple(part[chosen] for part in parts)


def q_network(width: int, hidden: int, actions: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, actions),
    )


class Agent:
    def __init__(self, config: Config, width: int) -> None:
        self.config = config
        self.q_net = q_network(width, config.hidden)
        self.target_net = q_network(width, config.hidden)
        self.target_net.load_state_dict(self.q_net.state_dict())
        self.optimizer = torch.optim.Adam(self.q_net.parameters(), lr=config.lr)

    def act(self, state: np.ndarray) -> int:
        if random.random() < self.config.epsilon:
            return random.randrange(3)
        with torch.no_grad():
            return int(self.q_net(torch.from_numpy(state)).argmax())

    def update(self, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        states, actions, rewards, following, ended = batch
        values = self.q_net(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            next_values = self.target_net(following).max(dim=1).values
            targets = rewards + self.config.gamma * (1 - ended) * next_values
        loss = nn.functional.smooth_l1_loss(values, targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main() -> None:
    config = Config()
    random.seed(config.seed)
    torch.manual_seed(config.seed)
    elevator = Elevator(config)
    state = elevator.reset()
    agent, memory = Agent(config, len(state)), Memory(config.memory, len(state))
    rewards = 0.0
    for step in range(config.warmup + config.steps):
        action = agent.act(state)
        following, reward, ended = elevator.step(action)
        memory.add(state, action, reward, following, ended)
        state = elevator.reset() if ended else following
        rewards += reward
        if step < config.warmup:
            continue
        loss = agent.update(memory.sample(config.batch_size))
        if step % config.copy_every == 0:
            agent.target_net.load_state_dict(agent.q_net.state_dict())
            print(f"step {step}: loss {loss.item():.4f}, mean reward {rewards / config.copy_every:.3f}")
            rewards = 0.0


if __name__ == "__main__":
    main()

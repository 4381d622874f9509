"""Double DQN that decides how fast a gondola lift runs and when it holds cabins back."""

import random
from collections import deque, namedtuple
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

Transition = namedtuple("Transition", "state action reward next_state done")


@dataclass
class Config:
    stations: int = 4
    history: int = 16
    hidden: int = 384
    batch_size: int = 128
    capacity: int = 20_000
    warmup: int = 500
    steps: int = 900
    gamma: float = 0.98
    tau: float = 0.01
    lr: float = 5e-4
    epsilon: float = 0.15
    seed: int = 3


class GondolaLift:
    """Skiers queue at the stations; the agent picks one of three speeds for the rope, or stops it to load."""

    SPEEDS = (0.0, 2.5, 4.0, 6.0)

    def __init__(self, stations, history, seed):
        self.stations, self.history = stations, history
        self.rng = np.random.default_rng(seed)
        self.reset()

    @property
    def observation_size(self):
        return self.history * (2 * self.stations + 2)

    def reset(self):
        self.clock = 0
        self.queues = self.rng.integers(0, 20, self.stations).astype(np.float32)
        self.wind = float(self.rng.uniform(0, 1))
        self.frames = deque([self._frame(0.0)] * self.history, maxlen=self.history)
        return self._observe()

    def _frame(self, speed):
        arrivals = 4 + 3 * np.sin(self.clock / 30 + np.arange(self.stations))
        return np.concatenate([self.queues / 50, arrivals / 10, [speed / 6, self.wind]]).astype(np.float32)

    def _observe(self):
        return np.concatenate(self.frames)

    def step(self, action):
        speed = self.SPEEDS[action]
        self.clock += 1
        self.wind = float(np.clip(self.wind + self.rng.normal(0, 0.05), 0, 1))
        arrivals = self.rng.poisson(4 + 3 * np.sin(self.clock / 30 + np.arange(self.stations)))
        carried = np.minimum(self.queues, speed * 1.4)
        self.queues = np.minimum(self.queues - carried + arrivals, 100).astype(np.float32)
        reward = float(carried.sum() - 0.1 * self.queues.sum() - 4 * self.wind * speed) / 20
        self.frames.append(self._frame(speed))
        return self._observe(), reward, self.clock >= 240


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def __len__(self):
        return len(self.memory)

    def push(self, *transition):
        self.memory.append(Transition(*transition))

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.memory, batch_size)))
        states = torch.tensor(batch.state, dtype=torch.float32)
        next_states = torch.tensor(batch.next_state, dtype=torch.float32)
        actions = torch.tensor(batch.action).unsqueeze(1)
        rewards = torch.tensor(batch.reward, dtype=torch.float32)
        done = torch.tensor(batch.done, dtype=torch.float32)
        return states, actions, rewards, next_states, done


class DuelingNet(nn.Module):
    def __init__(self, observation, actions, hidden):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(observation, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.LayerNorm(hidden)
        )
        self.value = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.advantage = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions))

    def forward(self, observation):
        features = self.trunk(observation)
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(dim=1, keepdim=True)


class Agent:
    def __init__(self, config, observation, actions):
        self.config, self.actions = config, actions
        self.online = DuelingNet(observation, actions, config.hidden)
        self.target = DuelingNet(observation, actions, config.hidden).requires_grad_(False)
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=config.lr, fused=True)
        self.criterion = nn.SmoothL1Loss()

    @torch.no_grad()
    def act(self, state):
        if random.random() < self.config.epsilon:
            return random.randrange(self.actions)
        return int(self.online(torch.from_numpy(state).unsqueeze(0)).argmax())

    def learn(self, states, actions, rewards, next_states, done):
        with torch.no_grad():
            best = self.online(next_states).argmax(dim=1, keepdim=True)
            future = self.target(next_states).gather(1, best).squeeze(1)
            expected = rewards + self.config.gamma * future * (1 - done)
        loss = self.criterion(self.online(states).gather(1, actions).squeeze(1), expected)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), self.config.tau)


def main(config):
    random.seed(config.seed)
    torch.manual_seed(config.seed)
    lift = GondolaLift(config.stations, config.history, config.seed)
    agent = Agent(config, lift.observation_size, len(lift.SPEEDS))
    memory = ReplayMemory(config.capacity)
    state, score, scores = lift.reset(), 0.0, []
    for step in range(config.warmup + config.steps):
        action = agent.act(state)
        next_state, reward, done = lift.step(action)
        memory.push(state, action, reward, next_state, done)
        state, score = next_state, score + reward
        if done:
            scores.append(score)
            state, score = lift.reset(), 0.0
        if step >= config.warmup:
            agent.learn(*memory.sample(config.batch_size))
    print("scores of the days:", " ".join(f"{day:.1f}" for day in scores))


if __name__ == "__main__":
    main(Config())

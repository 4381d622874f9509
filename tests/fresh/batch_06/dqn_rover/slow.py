"""Double deep Q-learning: a rover with a ring of range sensors drives to a beacon between round rocks."""

import math
import random
from collections import deque, namedtuple
from copy import deepcopy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", "state action reward next_state done")
RAYS = 28


class Rover:
    """State: distances along the rays, heading, direction and distance of the beacon."""

    actions = 3  # left, straight on, right

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.angles = np.linspace(0, 2 * math.pi, RAYS, endpoint=False)

    def reset(self):
        self.rocks = self.rng.uniform(1.5, 8.5, (6, 2))
        self.place, self.beacon = np.array([0.5, 0.5]), self.rng.uniform(7, 9.5, 2)
        self.heading, self.steps = 0.8, 0
        return self.observe()

    def observe(self):
        directions = np.stack([np.cos(self.angles + self.heading), np.sin(self.angles + self.heading)], axis=1)
        away = self.rocks - self.place
        along = directions @ away.T
        across = np.sqrt(np.maximum((away**2).sum(axis=1) - along**2, 0))
        ranges = np.where((along > 0) & (across < 0.6), along, 5.0).min(axis=1).clip(0, 5) / 5
        goal = self.beacon - self.place
        bearing = math.atan2(goal[1], goal[0]) - self.heading
        rest = [math.cos(bearing), math.sin(bearing), np.linalg.norm(goal) / 10, self.heading % (2 * math.pi)]
        return np.concatenate([ranges, rest]).astype(np.float32)

    def step(self, action):
        before = np.linalg.norm(self.beacon - self.place)
        self.heading += 0.35 * (action - 1)
        self.place = self.place + 0.3 * np.array([math.cos(self.heading), math.sin(self.heading)])
        self.steps += 1
        after = np.linalg.norm(self.beacon - self.place)
        crashed = bool((np.linalg.norm(self.rocks - self.place, axis=1) < 0.5).any() or (abs(self.place - 5) > 5).any())
        reward = float(before - after) - 2.0 * crashed + 3.0 * (after < 0.5)
        return self.observe(), reward, crashed or after < 0.5 or self.steps > 120


class QNetwork(nn.Module):
    def __init__(self, inputs, actions, hidden=512):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, actions)
        )

    def forward(self, x):
        return self.layers(x)


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)

    def push(self, *values):
        self.memory.append(Transition(*values))

    def sample(self, batch_size):
        return Transition(*zip(*random.sample(self.memory, batch_size)))

    def __len__(self):
        return len(self.memory)


def to_tensor(states):
    return torch.tensor(states, dtype=torch.float32)


class Agent:
    def __init__(self, inputs, actions, gamma=0.97, lr=5e-4):
        self.policy = QNetwork(inputs, actions)
        self.target = deepcopy(self.policy).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr, fused=True)
        self.actions, self.gamma = actions, gamma

    @torch.no_grad()
    def act(self, state, epsilon):
        if random.random() < epsilon:
            return random.randrange(self.actions)
        return self.policy(torch.from_numpy(state)[None]).argmax().item()

    def learn(self, batch):
        states, next_states = to_tensor(batch.state), to_tensor(batch.next_state)
        actions = torch.tensor(batch.action)[:, None]
        rewards, done = torch.tensor(batch.reward), torch.tensor(batch.done, dtype=torch.float32)
        with torch.no_grad():
            best = self.policy(next_states).argmax(dim=1, keepdim=True)
            future = self.target(next_states).gather(1, best).squeeze(1)
        wanted = rewards + self.gamma * future * (1 - done)
        values = self.policy(states).gather(1, actions).squeeze(1)
        loss = F.smooth_l1_loss(values, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 10.0)
        self.optimizer.step()
        return loss


def main(moves=2200, warmup=600, batch_size=512, train_every=4, sync_every=400):
    random.seed(7)
    torch.manual_seed(7)
    env, memory = Rover(7), ReplayMemory(20000)
    state = env.reset()
    agent = Agent(len(state), env.actions)
    score, episodes = 0.0, 0
    for move in range(1, moves + 1):
        action = agent.act(state, epsilon=max(0.1, 1 - move / 1500))
        next_state, reward, done = env.step(action)
        memory.push(state, action, reward, next_state, done)
        state = env.reset() if done else next_state
        score, episodes = score + reward, episodes + done
        if len(memory) >= warmup and move % train_every == 0:
            loss = agent.learn(memory.sample(batch_size))
            if move % 200 == 0:
                print(f"move {move} episodes {episodes} score {score:.1f} loss {loss.item():.4f}")
        if move % sync_every == 0:
            agent.target.load_state_dict(agent.policy.state_dict())


if __name__ == "__main__":
    main()

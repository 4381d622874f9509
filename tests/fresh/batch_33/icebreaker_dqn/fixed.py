"""An icebreaker that seeks the way to open water: double Q-learning from a picture of the ice."""

import argparse
import random
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class IceFields:
    """Many ice fields at once. Thick ice costs time, the eastern edge is open water."""

    def __init__(self, count: int, size: int, limit: int, seed: int):
        self.count, self.size, self.limit = count, size, limit
        self.rng = np.random.default_rng(seed)
        self.ice = np.zeros((count, size, size), dtype=np.float32)
        self.place = np.zeros((count, 2), dtype=np.int64)
        self.age = np.zeros(count, dtype=np.int64)
        self.reset(np.arange(count))

    def reset(self, which: np.ndarray) -> None:
        ice = self.rng.random((len(which), self.size, self.size), dtype=np.float32)
        self.ice[which] = 0.5 * ice + 0.5 * np.roll(ice, 1, axis=2)
        self.place[which] = np.stack([self.rng.integers(0, self.size, len(which)), np.zeros(len(which), int)], axis=1)
        self.age[which] = 0

    def picture(self) -> np.ndarray:
        ship = np.zeros_like(self.ice)
        ship[np.arange(self.count), self.place[:, 0], self.place[:, 1]] = 1
        edge = np.broadcast_to(np.linspace(0, 1, self.size, dtype=np.float32), self.ice.shape)
        return np.stack([self.ice, ship, edge], axis=1)

    def step(self, actions: np.ndarray):
        self.place = np.clip(self.place + MOVES[actions], 0, self.size - 1)
        each = np.arange(self.count)
        thick = self.ice[each, self.place[:, 0], self.place[:, 1]]
        self.ice[each, self.place[:, 0], self.place[:, 1]] *= 0.5
        self.age += 1
        arrived = self.place[:, 1] == self.size - 1
        reward = np.where(arrived, 5.0, -0.1 - thick).astype(np.float32)
        seen = self.picture()
        over = np.flatnonzero(arrived | (self.age >= self.limit))
        if len(over):
            self.reset(over)
        return seen, reward, arrived.astype(np.float32)


class Batch(NamedTuple):
    state: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    following: torch.Tensor
    done: torch.Tensor


class Replay:
    def __init__(self, capacity: int, shape: tuple[int, ...]):
        self.capacity, self.size, self.head = capacity, 0, 0
        self.fields = Batch(
            torch.zeros(capacity, *shape),
            torch.zeros(capacity, dtype=torch.long),
            torch.zeros(capacity),
            torch.zeros(capacity, *shape),
            torch.zeros(capacity),
        )

    def push(self, *values: np.ndarray) -> None:
        count = len(values[0])
        where = (self.head + torch.arange(count)) % self.capacity
        for field, value in zip(self.fields, values, strict=True):
            field[where] = torch.from_numpy(value)
        self.head = (self.head + count) % self.capacity
        self.size = min(self.capacity, self.size + count)

    def sample(self, count: int) -> Batch:
        index = torch.randint(self.size, (count,))
        return Batch(*(field[index] for field in self.fields))


class QNetwork(nn.Module):
    def __init__(self, size: int, width: int = 24):
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        inside = 2 * width * (size // 4) ** 2
        self.value = nn.Sequential(nn.Linear(inside, 128), nn.ReLU(), nn.Linear(128, 1))
        self.advantage = nn.Sequential(nn.Linear(inside, 128), nn.ReLU(), nn.Linear(128, len(MOVES)))

    def forward(self, picture):
        seen = self.eyes(picture)
        advantage = self.advantage(seen)
        return self.value(seen) + advantage - advantage.mean(1, keepdim=True)


class Agent:
    def __init__(self, size: int, lr: float, gamma: float, sync: int):
        self.policy, self.target = QNetwork(size), QNetwork(size)
        self.target.load_state_dict(self.policy.state_dict())
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=lr)
        self.gamma, self.sync, self.updates = gamma, sync, 0

    @torch.no_grad()
    def act(self, picture: np.ndarray, epsilon: float) -> np.ndarray:
        greedy = self.policy(torch.from_numpy(picture)).argmax(1).numpy()
        explore = np.random.random(len(greedy)) < epsilon
        return np.where(explore, np.random.randint(len(MOVES), size=len(greedy)), greedy)

    def learn(self, batch: Batch) -> torch.Tensor:
        chosen = self.policy(batch.state).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = self.policy(batch.following).argmax(1, keepdim=True)
            ahead = self.target(batch.following).gather(1, best).squeeze(1)
            wanted = batch.reward + self.gamma * (1 - batch.done) * ahead
        loss = nn.functional.smooth_l1_loss(chosen, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 10.0)
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.sync == 0:
            self.target.load_state_dict(self.policy.state_dict())
        return loss.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fields", type=int, default=16)
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--updates", type=int, default=240)
    parser.add_argument("--seed", type=int, default=44)
    args = parser.parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    fields = IceFields(args.fields, args.size, 60, args.seed)
    replay = Replay(6000, (3, args.size, args.size))
    agent = Agent(args.size, lr=5e-4, gamma=0.97, sync=50)
    picture, rewards, losses = fields.picture(), [], []
    for step in range(args.updates + 20):
        actions = agent.act(picture, epsilon=max(0.1, 1 - step / args.updates))
        following, reward, done = fields.step(actions)
        replay.push(picture, actions, reward, following, done)
        picture = fields.picture()
        rewards.append(reward.mean())
        if step >= 20:
            losses.append(agent.learn(replay.sample(args.batch)))
    print(f"loss {torch.stack(losses[-50:]).mean():.4f}, reward a step {np.mean(rewards[-50:]):.3f}")


if __name__ == "__main__":
    main()

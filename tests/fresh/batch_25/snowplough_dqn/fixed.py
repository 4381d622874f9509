"""Deep Q-learning of a snowplough's route: a grid of streets on which snow keeps falling."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

MOVES = torch.tensor([[-1, 0], [1, 0], [0, -1], [0, 1]])


@dataclass
class Options:
    towns: int = 16
    side: int = 16
    capacity: int = 4_000
    batch_size: int = 48
    gamma: float = 0.97
    lr: float = 5e-4
    warmup: int = 20
    steps: int = 200
    sync_every: int = 50
    seed: int = 9


class Towns:
    """Many towns at once; a plough earns the depth of the snow that it clears."""

    def __init__(self, count: int, side: int, generator: torch.Generator) -> None:
        self.count, self.side, self.generator = count, side, generator
        self.rows = torch.arange(count)
        self.snow = torch.rand(count, side, side, generator=generator)
        self.place = torch.randint(side, (count, 2), generator=generator)
        self.age = torch.zeros(count, dtype=torch.long)

    def observe(self) -> torch.Tensor:
        plough = torch.zeros_like(self.snow)
        plough[self.rows, self.place[:, 0], self.place[:, 1]] = 1.0
        return torch.stack([self.snow, plough], dim=1)

    def step(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.place = (self.place + MOVES[action]).clamp(0, self.side - 1)
        reward = self.snow[self.rows, self.place[:, 0], self.place[:, 1]].clone()
        self.snow = (self.snow + 0.01 * torch.rand(self.snow.shape, generator=self.generator)).clamp(max=1.0)
        self.snow[self.rows, self.place[:, 0], self.place[:, 1]] = 0.0
        self.age += 1
        done = self.age >= 60
        self.age[done] = 0
        self.snow[done] = torch.rand(int(done.sum()), self.side, self.side, generator=self.generator)
        return reward, done.float()


class Replay:
    def __init__(self, capacity: int, side: int, generator: torch.Generator) -> None:
        self.seen = torch.zeros(capacity, 2, side, side)
        self.following = torch.zeros(capacity, 2, side, side)
        self.action = torch.zeros(capacity, dtype=torch.long)
        self.reward, self.done = torch.zeros(capacity), torch.zeros(capacity)
        self.capacity, self.generator = capacity, generator
        self.position = self.size = 0

    def push(self, seen, action, reward, following, done) -> None:
        slots = (self.position + torch.arange(len(action))) % self.capacity
        self.seen[slots], self.following[slots] = seen, following
        self.action[slots], self.reward[slots], self.done[slots] = action, reward, done
        self.position = (self.position + len(action)) % self.capacity
        self.size = min(self.capacity, self.size + len(action))

    def sample(self, count: int) -> tuple[torch.Tensor, ...]:
        slots = torch.randint(self.size, (count,), generator=self.generator)
        return tuple(part[slots] for part in (self.seen, self.action, self.reward, self.following, self.done))


class QNetwork(nn.Module):
    def __init__(self, side: int, width: int = 32, actions: int = len(MOVES)) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.value = nn.Sequential(nn.Linear(2 * width * (side // 2) ** 2, 128), nn.ReLU(), nn.Linear(128, actions))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.value(self.features(seen))


class Agent:
    def __init__(self, options: Options, generator: torch.Generator) -> None:
        self.options, self.generator = options, generator
        self.online = QNetwork(options.side)
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=options.lr)

    @torch.no_grad()
    def act(self, seen: torch.Tensor, epsilon: float) -> torch.Tensor:
        greedy = self.online(seen).argmax(dim=1)
        other = torch.randint(len(MOVES), greedy.shape, generator=self.generator)
        return torch.where(torch.rand(greedy.shape, generator=self.generator) < epsilon, other, greedy)

    def learn(self, replay: Replay) -> float:
        seen, action, reward, following, done = replay.sample(self.options.batch_size)
        value = self.online(seen).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = self.target(following).max(dim=1).values
        loss = F.smooth_l1_loss(value, reward + self.options.gamma * (1.0 - done) * best)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def sync(self) -> None:
        self.target.load_state_dict(self.online.state_dict())


def main(options: Options) -> None:
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    towns = Towns(options.towns, options.side, generator)
    replay = Replay(options.capacity, options.side, generator)
    agent = Agent(options, generator)
    cleared = 0.0
    for step in range(options.warmup + options.steps):
        seen = towns.observe()
        action = agent.act(seen, epsilon=max(0.1, 1.0 - step / 120))
        reward, done = towns.step(action)
        replay.push(seen, action, reward, towns.observe(), done)
        cleared = 0.98 * cleared + 0.02 * reward.mean().item()
        if step < options.warmup:
            continue
        loss = agent.learn(replay)
        if step % options.sync_every == 0:
            agent.sync()
            print(f"step {step}: loss {loss:.4f}, snow cleared {cleared:.3f}")


if __name__ == "__main__":
    main(Options())

"""Ferrets that look for rabbits in burrows: proximal policy optimisation over several burrows at a time."""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Options:
    burrows: int = 16
    horizon: int = 32
    updates: int = 44
    epochs: int = 4
    minibatch: int = 256
    size: int = 9
    clip: float = 0.2
    gamma: float = 0.97
    trace: float = 0.95
    entropy: float = 0.01
    lr: float = 7e-4
    seed: int = 1


class Burrow:
    """A grid with walls; the ferret smells the rabbit and is rewarded when it is there."""

    moves = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])

    def __init__(self, size: int, seed: int):
        self.size = size
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> np.ndarray:
        self.walls = self.rng.random((self.size, self.size)) < 0.15
        self.ferret, self.rabbit = self.rng.integers(self.size, size=(2, 2))
        self.left = 40
        return self.observe()

    def observe(self) -> np.ndarray:
        layers = np.zeros((3, self.size, self.size), dtype=np.float32)
        layers[0] = self.walls
        layers[1][tuple(self.ferret)] = 1
        layers[2][tuple(self.rabbit)] = 1
        return layers

    def step(self, action: int):
        place = (self.ferret + self.moves[action]).clip(0, self.size - 1)
        if not self.walls[tuple(place)]:
            self.ferret = place
        self.left -= 1
        found = bool((self.ferret == self.rabbit).all())
        done = found or self.left == 0
        reward = 1.0 if found else -0.01
        return (self.reset() if done else self.observe()), reward, done


class Policy(nn.Module):
    def __init__(self, size: int, actions: int = 4):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * size * size, 128),
            nn.ReLU(),
        )
        self.actor = nn.Linear(128, actions)
        self.critic = nn.Linear(128, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


@torch.no_grad()
def rollout(policy, burrows, seen, options):
    story = {key: [] for key in ("seen", "action", "log_prob", "value", "reward", "done")}
    for _ in range(options.horizon):
        views = torch.from_numpy(np.stack(seen))
        answers = [policy(view.unsqueeze(0)) for view in views]
        logits, value = (torch.cat(parts) for parts in zip(*answers))
        noise = -torch.log(-torch.log(torch.rand(logits.shape)))
        action = (logits + noise).argmax(dim=1)
        log_prob = F.log_softmax(logits, dim=1).gather(1, action[:, None]).squeeze(1)
        results = [burrow.step(choice) for burrow, choice in zip(burrows, action.tolist())]
        seen = [result[0] for result in results]
        reward = torch.tensor([result[1] for result in results])
        done = torch.tensor([float(result[2]) for result in results])
        for key, part in zip(story, (views, action, log_prob, value, reward, done)):
            story[key].append(part)
    story = {key: torch.stack(parts) for key, parts in story.items()}
    _, last = policy(torch.from_numpy(np.stack(seen)))
    return story, last, seen


def advantages(story, last, options):
    result, trace = torch.zeros_like(story["reward"]), torch.zeros_like(last)
    for t in reversed(range(options.horizon)):
        keep = 1 - story["done"][t]
        delta = story["reward"][t] + options.gamma * last * keep - story["value"][t]
        trace = delta + options.gamma * options.trace * keep * trace
        result[t], last = trace, story["value"][t]
    return result


def update(policy, optimizer, story, gain, options):
    flat = {key: part.flatten(0, 1) for key, part in story.items()}
    target, gain = (gain + story["value"]).flatten(), gain.flatten()
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    for _ in range(options.epochs):
        for rows in torch.randperm(len(gain)).split(options.minibatch):
            logits, value = policy(flat["seen"][rows])
            chances = F.log_softmax(logits, dim=1)
            ratio = (chances.gather(1, flat["action"][rows, None]).squeeze(1) - flat["log_prob"][rows]).exp()
            clipped = ratio.clamp(1 - options.clip, 1 + options.clip)
            actor = -torch.min(ratio * gain[rows], clipped * gain[rows]).mean()
            entropy = -(chances.exp() * chances).sum(dim=1).mean()
            loss = actor + 0.5 * F.mse_loss(value, target[rows]) - options.entropy * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=Options.updates)
    options = Options(updates=parser.parse_args().updates)
    torch.manual_seed(options.seed)
    burrows = [Burrow(options.size, options.seed + number) for number in range(options.burrows)]
    policy = Policy(options.size)
    optimizer = torch.optim.Adam(policy.parameters(), lr=options.lr, eps=1e-5)
    seen = [burrow.observe() for burrow in burrows]
    for number in range(options.updates):
        story, last, seen = rollout(policy, burrows, seen, options)
        update(policy, optimizer, story, advantages(story, last, options), options)
        if number % 5 == 0:
            print(f"update {number}: reward {story['reward'].mean():.4f}")


if __name__ == "__main__":
    main()

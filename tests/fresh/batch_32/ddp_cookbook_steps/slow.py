"""Puts the steps of recipes in order of time needed: two ranks, gradients gathered over several small batches.

torchrun --nproc-per-node 2 slow.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class RecipeSteps:
    """Steps are rows of words; the minutes they take are a sum over what words mean."""

    def __init__(self, words: int, length: int, batch_size: int, seed: int, rank: int):
        shared = torch.Generator().manual_seed(seed)
        self.minutes = torch.rand(words, generator=shared).pow(4)
        self.generator = torch.Generator().manual_seed(seed + 1 + rank)
        self.words, self.length, self.batch_size = words, length, batch_size

    def draw(self):
        steps = torch.randint(1, self.words, (self.batch_size, self.length), generator=self.generator)
        return steps, self.minutes[steps].sum(dim=1)


class StepEncoder(nn.Module):
    def __init__(self, words: int, width: int, hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, steps):
        states, _ = self.lstm(self.embedding(steps))
        return self.head(states.mean(dim=1)).squeeze(1)


def ranking_loss(scores: torch.Tensor, minutes: torch.Tensor, margin: float) -> torch.Tensor:
    sign = torch.sign(minutes[:, None] - minutes[None, :])
    return F.relu(margin - sign * (scores[:, None] - scores[None, :])).mean()


class Cook:
    def __init__(self, args, rank: int):
        self.args = args
        self.data = RecipeSteps(args.words, args.length, args.batch_size, args.seed, rank)
        self.model = DistributedDataParallel(StepEncoder(args.words, args.width, args.hidden))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def backward(self):
        steps, minutes = self.data.draw()
        loss = ranking_loss(self.model(steps), minutes, self.args.margin) / self.args.accumulate
        loss.backward()
        return loss.detach()

    def update(self):
        total = torch.zeros(())
        for _ in range(self.args.accumulate):
            total += self.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=5000)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--updates", type=int, default=140)
    parser.add_argument("--margin", type=float, default=0.5)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=19)
    return parser.parse_args()


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // dist.get_world_size()))
    torch.manual_seed(args.seed)
    cook = Cook(args, rank)
    for number in range(1, args.updates + 1):
        loss = cook.update()
        if rank == 0 and number % 25 == 0:
            print(f"update {number}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Scores reviews of taverns with two ranks; four small batches make one step.

torchrun --nproc-per-node 2 slow.py
"""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORDS = 24_000


class ReviewShard:
    """The reviews of one rank: word ids, padded with zeros, and a score from one to five."""

    def __init__(self, reviews: int, length: int, rank: int) -> None:
        generator = torch.Generator().manual_seed(500 + rank)
        self.scores = torch.randint(5, (reviews,), generator=generator)
        words = torch.randint(1, WORDS, (reviews, length), generator=generator)
        telling = 1 + self.scores[:, None] * 200 + torch.randint(200, (reviews, length), generator=generator)
        self.words = torch.where(torch.rand(reviews, length, generator=generator) < 0.2, telling, words)
        ends = torch.randint(length // 2, length + 1, (reviews, 1), generator=generator)
        self.words[torch.arange(length)[None, :] >= ends] = 0
        self.generator = generator

    def micro_batches(self, size: int, count: int):
        for chosen in torch.randperm(len(self.scores), generator=self.generator)[: size * count].split(size):
            yield self.words[chosen], self.scores[chosen]


class ReviewScorer(nn.Module):
    def __init__(self, dim: int, filters: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, dim, padding_idx=0)
        self.convs = nn.ModuleList([nn.Conv1d(dim, filters, size, padding=size // 2) for size in (3, 5, 7)])
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(3 * filters, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words).transpose(1, 2)
        pooled = [torch.relu(conv(x)).amax(dim=2) for conv in self.convs]
        return self.head(self.dropout(torch.cat(pooled, dim=1)))


def train(args: argparse.Namespace) -> None:
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    shard = ReviewShard(args.reviews, args.length, rank)
    model = DistributedDataParallel(ReviewScorer(args.dim, args.filters))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    for step in range(args.steps):
        optimizer.zero_grad()
        total = 0.0
        for words, scores in shard.micro_batches(args.micro_batch, args.accumulate):
            loss = criterion(model(words), scores) / args.accumulate
            loss.backward()
            total += loss.item()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: loss {total:.4f}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reviews", type=int, default=4_000)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=12)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--filters", type=int, default=96)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=19)
    return parser.parse_args()


def main() -> None:
    args = parse()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    try:
        train(args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Recommend radio shows: two towers over listeners and shows, trained with sampled negatives."""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class TowerConfig:
    listeners: int = 90_000
    shows: int = 12_000
    dim: int = 48
    hidden: int = 128
    sparse_tables: bool = False


class Tower(nn.Module):
    """A table of ids, followed by a small network."""

    def __init__(self, rows, config):
        super().__init__()
        self.table = nn.Embedding(rows, config.dim, sparse=config.sparse_tables)
        nn.init.normal_(self.table.weight, std=0.05)
        self.net = nn.Sequential(
            nn.Linear(config.dim, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.dim),
        )

    def forward(self, ids):
        return F.normalize(self.net(self.table(ids)), dim=-1)


class TwoTowers(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.listener_tower = Tower(config.listeners, config)
        self.show_tower = Tower(config.shows, config)
        self.scale = nn.Parameter(torch.tensor(8.0))

    def forward(self, listeners, shows):
        return self.listener_tower(listeners), self.show_tower(shows)

    def loss(self, listeners, heard, negatives):
        user, show = self(listeners, torch.cat([heard, negatives]))
        positive = (user * show[: len(heard)]).sum(dim=-1, keepdim=True)
        negative = user @ show[len(heard) :].T
        logits = self.scale * torch.cat([positive, negative], dim=1)
        return F.cross_entropy(logits, torch.zeros(len(heard), dtype=torch.long))


class PlayLog:
    """Plays of listeners whose taste leans to a part of the catalogue."""

    def __init__(self, config, plays, seed):
        rng = np.random.default_rng(seed)
        listeners = rng.integers(0, config.listeners, plays)
        home = (listeners * 7919) % config.shows
        offsets = rng.geometric(0.02, plays)
        self.listeners = torch.from_numpy(listeners)
        self.shows = torch.from_numpy((home + offsets) % config.shows)
        self.catalogue = config.shows

    def batches(self, size, negatives, generator):
        order = torch.randperm(len(self.listeners), generator=generator)
        for chosen in order.split(size):
            if len(chosen) == size:
                drawn = torch.randint(0, self.catalogue, (negatives,), generator=generator)
                yield self.listeners[chosen], self.shows[chosen], drawn


@torch.no_grad()
def hit_rate(model, log, amount=500, top=50):
    user = model.listener_tower(log.listeners[:amount])
    shows = model.show_tower(torch.arange(log.catalogue))
    best = (user @ shows.T).topk(top, dim=1).indices
    return (best == log.shows[:amount, None]).any(dim=1).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plays", type=int, default=260_000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--negatives", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=23)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    config = TowerConfig()
    log = PlayLog(config, args.plays, args.seed)
    model = TwoTowers(config)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    generator = torch.Generator().manual_seed(args.seed)
    for epoch in range(args.epochs):
        total, count = 0.0, 0
        for listeners, heard, negatives in log.batches(args.batch_size, args.negatives, generator):
            optimizer.zero_grad()
            loss = model.loss(listeners, heard, negatives)
            loss.backward()
            optimizer.step()
            total += loss.item()
            count += 1
        print(f"epoch {epoch}: loss {total / count:.4f}, hits in the top 50 {hit_rate(model, log):.3f}")


if __name__ == "__main__":
    main()

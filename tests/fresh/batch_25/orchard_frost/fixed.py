"""Predicts the lowest temperature of a night in an orchard from readings of the evening before."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


def simulate_nights(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    readings = rng.normal(size=(rows, 18)).astype(np.float32)
    places = np.stack([rng.integers(0, size, rows) for size in (60, 12, 8)], axis=1)
    height = places[:, 0] / 60.0
    minimum = 2.0 * readings[:, 0] - 1.5 * np.tanh(readings[:, 1] * readings[:, 2]) - 3.0 * height
    minimum += 0.7 * np.sin(places[:, 1] / 12.0 * 2.0 * np.pi) + rng.normal(scale=0.3, size=rows)
    return readings, places.astype(np.int64), minimum.astype(np.float32)


class NightsDataset(Dataset):
    """Readings of the evening, orchard, month and kind of fruit, and the minimum that followed."""

    def __init__(self, rows: int, seed: int) -> None:
        readings, places, minimum = simulate_nights(rows, seed)
        self.readings = torch.from_numpy(readings)
        self.places = torch.from_numpy(places)
        self.minimum = torch.from_numpy(minimum)
        self.mean, self.std = self.minimum.mean(), self.minimum.std()

    def __len__(self) -> int:
        return len(self.minimum)

    def __getitem__(self, index):
        target = (self.minimum[index] - self.mean) / self.std
        return self.readings[index], self.places[index], target


class FrostNet(nn.Module):
    def __init__(self, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.orchard = nn.Embedding(60, 16)
        self.month = nn.Embedding(12, 6)
        self.fruit = nn.Embedding(8, 4)
        layers: list[nn.Module] = []
        size = 18 + 16 + 6 + 4
        for _ in range(depth):
            layers += [nn.Linear(size, width), nn.LayerNorm(width), nn.SiLU(), nn.Dropout(dropout)]
            size = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(size, 1)

    def forward(self, readings: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        orchard, month, fruit = places.unbind(dim=1)
        parts = [readings, self.orchard(orchard), self.month(month), self.fruit(fruit)]
        return self.head(self.body(torch.cat(parts, dim=1))).squeeze(1)


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    total, count = torch.zeros(()), 0
    for readings, places, target in loader:
        loss = nn.functional.smooth_l1_loss(model(readings, places), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(target)
        count += len(target)
    return float(total / count)


@torch.no_grad()
def evaluate(model: nn.Module, dataset: NightsDataset) -> float:
    model.eval()
    readings, places, target = dataset[torch.arange(len(dataset))]
    return float((model(readings, places) - target).abs().mean() * dataset.std)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    torch.manual_seed(11)
    train, held_out = NightsDataset(args.rows, seed=1), NightsDataset(4_000, seed=2)
    batches = BatchSampler(RandomSampler(train), args.batch_size, drop_last=False)
    loader = DataLoader(train, sampler=batches, batch_size=None)
    model = FrostNet(args.width, args.depth, dropout=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        loss = train_epoch(model, loader, optimizer)
        schedule.step()
        print(f"epoch {epoch}: loss {loss:.4f}, held out {evaluate(model, held_out):.3f} degrees")


if __name__ == "__main__":
    main()

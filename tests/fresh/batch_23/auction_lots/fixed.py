"""Predicts the hammer price of auction lots from their catalogue entries: numbers, categories and the estimate."""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMBERS = ["estimate_low", "estimate_high", "height", "width", "weight", "year", "photos", "bids_before", "watchers"]
CATEGORIES = {"house": 24, "material": 60, "period": 18, "condition": 6, "country": 40}


def make_catalogue(lots: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns: dict[str, np.ndarray] = {name: rng.lognormal(0.0, 0.5, lots).astype(np.float32) for name in NUMBERS}
    for name, size in CATEGORIES.items():
        columns[name] = rng.integers(0, size, lots)
    table = pd.DataFrame(columns)
    price = 0.6 * table["estimate_low"] + 0.5 * table["estimate_high"] + 0.02 * table["material"]
    table["hammer"] = np.log1p(price * rng.lognormal(0.0, 0.2, lots)).astype(np.float32)
    return table


class LotsDataset(Dataset):
    """One lot of the catalogue: its numbers, its categories and the logarithm of its price."""

    def __init__(self, table: pd.DataFrame) -> None:
        self.numbers = table[NUMBERS].to_numpy(np.float32)
        self.categories = table[list(CATEGORIES)].to_numpy(np.int64)
        self.prices = table["hammer"].to_numpy(np.float32)
        self.mean = table[NUMBERS].mean().to_numpy(np.float32)
        self.std = table[NUMBERS].std().to_numpy(np.float32)

    def __len__(self) -> int:
        return len(self.prices)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.float32]:
        numbers = self.numbers[index]
        return (numbers - self.mean) / self.std, self.categories[index], self.prices[index]


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states + self.back(self.dropout(torch.relu(self.wide(self.norm(states)))))


class PriceNet(nn.Module):
    def __init__(self, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 12) for size in CATEGORIES.values())
        self.first = nn.Linear(len(NUMBERS) + 12 * len(CATEGORIES), width)
        self.blocks = nn.Sequential(*(Block(width, dropout) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        parts = [table(categories[:, column]) for column, table in enumerate(self.tables)]
        states = self.first(torch.cat([numbers, *parts], dim=1))
        return self.head(self.blocks(states)).squeeze(1)


def train_epoch(model: PriceNet, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    total = 0.0
    for numbers, categories, price in loader:
        optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(model(numbers, categories), price)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lots", type=int, default=9000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(5)
    data = LotsDataset(make_catalogue(args.lots, seed=5))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = PriceNet(args.width, args.depth, dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        started = time.perf_counter()
        loss = train_epoch(model, loader, optimizer)
        schedule.step()
        print(f"epoch {epoch}: loss {loss:.4f} in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()

"""Price of a night in a hostel from a table of past bookings: embeddings of the categories and a residual network."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CATEGORIES = {"city": 60, "room": 8, "channel": 12, "weekday": 7}
NUMBERS = [
    "guests",
    "nights",
    "lead_days",
    "beds",
    "stars",
    "rating",
    "distance",
    "occupancy",
    "events",
    "fuel",
    "rain",
]


def bookings(rows: int, seed: int) -> pd.DataFrame:
    """A table as the export of a booking system has it, its categories already encoded."""
    rng = np.random.default_rng(seed)
    table = {name: rng.integers(0, size, rows).astype(np.float32) for name, size in CATEGORIES.items()}
    table |= {name: rng.normal(size=rows).astype(np.float32) for name in NUMBERS}
    frame = pd.DataFrame(table)
    season = np.sin(frame["weekday"] * 2 * np.pi / 7) + 0.3 * frame["stars"] * frame["rating"]
    frame["price"] = season + 0.1 * frame["city"] / 60 + 0.05 * rng.normal(size=rows).astype(np.float32)
    return frame


class Bookings(Dataset):
    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        row = torch.from_numpy(self.frame.iloc[index].to_numpy(dtype=np.float32, copy=True))
        return row[: len(CATEGORIES)].long(), row[len(CATEGORIES) : -1], row[-1]


class Block(nn.Module):
    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.dropout(F.gelu(self.first(self.norm(x)))))


class PriceNet(nn.Module):
    def __init__(self, width: int, blocks: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 16) for size in CATEGORIES.values())
        self.stem = nn.Linear(16 * len(CATEGORIES) + len(NUMBERS), width)
        self.blocks = nn.Sequential(*(Block(width, dropout) for _ in range(blocks)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, categories: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        embedded = [table(categories[:, column]) for column, table in enumerate(self.embeddings)]
        return self.head(self.blocks(self.stem(torch.cat([*embedded, numbers], dim=1)))).squeeze(1)


@torch.no_grad()
def evaluate(model: PriceNet, loader: DataLoader) -> float:
    model.eval()
    wrong = count = 0.0
    for categories, numbers, price in loader:
        wrong += F.l1_loss(model(categories, numbers), price, reduction="sum").item()
        count += len(price)
    model.train()
    return wrong / count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=24_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(11)
    frame = bookings(args.rows, seed=11)
    cut = int(0.95 * len(frame))
    train = DataLoader(Bookings(frame[:cut]), batch_size=args.batch_size, shuffle=True, drop_last=True)
    test = DataLoader(Bookings(frame[cut:]), batch_size=512)
    model = PriceNet(args.width, args.blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))

    for epoch in range(args.epochs):
        total = torch.zeros(())
        for categories, numbers, price in train:
            loss = F.smooth_l1_loss(model(categories, numbers), price)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(train):.4f}, error {evaluate(model, test):.4f}")


if __name__ == "__main__":
    main()

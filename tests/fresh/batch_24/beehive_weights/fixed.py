"""Predict how a beehive's weight changes overnight from scale, weather and colony records."""

import argparse

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMERIC = [f"sensor_{i}" for i in range(18)]
CATEGORICAL = ["apiary", "breed", "month"]
SIZES = {"apiary": 40, "breed": 8, "month": 12}


def make_records(rows: int, seed: int) -> pd.DataFrame:
    """Nightly records of many hives: what a CSV export of the scales holds."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, len(NUMERIC))), columns=NUMERIC)
    for name, size in SIZES.items():
        frame[name] = rng.integers(0, size, rows)
    season = np.sin(2 * np.pi * frame["month"] / 12)
    frame["gain"] = (
        0.6 * frame["sensor_0"]
        - 0.3 * frame["sensor_1"] * frame["sensor_2"]
        + season
        + 0.02 * frame["apiary"]
        + rng.normal(scale=0.1, size=rows)
    )
    return frame


class HiveDataset(Dataset):
    """One night of one hive."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.numeric = torch.from_numpy(frame[NUMERIC].to_numpy(dtype=np.float32))
        self.codes = torch.from_numpy(frame[CATEGORICAL].to_numpy(dtype=np.int64))
        self.gain = torch.from_numpy(frame["gain"].to_numpy(dtype=np.float32))

    def __len__(self) -> int:
        return len(self.gain)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.numeric[index], self.codes[index], self.gain[index]


class HiveNet(nn.Module):
    """Embeddings of the categories beside the normalised sensors, then a residual MLP."""

    def __init__(self, width: int = 512, blocks: int = 3) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(SIZES[name], 16) for name in CATEGORICAL)
        self.norm = nn.BatchNorm1d(len(NUMERIC))
        self.entry = nn.Linear(len(NUMERIC) + 16 * len(CATEGORICAL), width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(blocks)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, numeric: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        parts = [embedding(codes[:, i]) for i, embedding in enumerate(self.embeddings)]
        hidden = self.entry(torch.cat([self.norm(numeric), *parts], dim=1))
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.out(hidden).squeeze(1)


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    total, count = 0.0, 0
    for numeric, codes, gain in loader:
        total += (model(numeric, codes) - gain).square().sum().item()
        count += len(gain)
    model.train()
    return (total / count) ** 0.5


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=12800)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    train_set = HiveDataset(make_records(args.rows, args.seed))
    valid_set = HiveDataset(make_records(1024, args.seed + 1))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=512)

    model = HiveNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train_loader))
    criterion = nn.SmoothL1Loss()

    for epoch in range(args.epochs):
        running = torch.zeros(())
        for numeric, codes, gain in train_loader:
            loss = criterion(model(numeric, codes), gain)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.detach()
        rmse = validate(model, valid_loader)
        print(f"epoch {epoch}: loss {running.item() / len(train_loader):.4f}, validation rmse {rmse:.4f}")


if __name__ == "__main__":
    main()

"""Price of a hide from the measurements that a tannery takes of it: a residual MLP on a table."""

import argparse
import math

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMERIC = [f"gauge_{i:02d}" for i in range(36)]
TARGET = "price"


def make_table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(rows, 6))
    mixing = rng.normal(size=(6, len(NUMERIC)))
    values = base @ mixing + 0.3 * rng.normal(size=(rows, len(NUMERIC)))
    table = pd.DataFrame(values, columns=NUMERIC)
    price = 40 + 6 * base[:, 0] + 3 * np.sin(2 * base[:, 1]) + base[:, 2] * base[:, 3]
    table[TARGET] = price + 0.5 * rng.normal(size=rows)
    return table


def split_and_scale(table: pd.DataFrame, share: float = 0.9) -> tuple[pd.DataFrame, pd.DataFrame]:
    cut = int(len(table) * share)
    train, held_out = table.iloc[:cut], table.iloc[cut:]
    mean, std = train.mean(), train.std()
    scaled = [((part - mean) / std).astype("float32").reset_index(drop=True) for part in (train, held_out)]
    return scaled[0], scaled[1]


class HideDataset(Dataset):
    def __init__(self, frame: pd.DataFrame):
        self.inputs = frame[NUMERIC]
        self.prices = frame[TARGET]

    def __len__(self) -> int:
        return len(self.prices)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = torch.from_numpy(self.inputs.iloc[index].to_numpy(copy=True))
        price = torch.tensor(self.prices.iloc[index])
        return row, price


class Block(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.body = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class PriceModel(nn.Module):
    def __init__(self, inputs: int, width: int, depth: int, dropout: float):
        super().__init__()
        self.stem = nn.Linear(inputs, width)
        self.blocks = nn.Sequential(*(Block(width, dropout) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x))).squeeze(-1)


def train_epoch(model, loader, optimizer, scheduler, loss_fn) -> float:
    model.train()
    losses = []
    for rows, prices in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(rows), prices)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


@torch.no_grad()
def evaluate(model, frame: pd.DataFrame) -> float:
    model.eval()
    rows = torch.from_numpy(frame[NUMERIC].to_numpy(copy=True))
    prices = torch.from_numpy(frame[TARGET].to_numpy(copy=True))
    return math.sqrt((model(rows) - prices).square().mean().item())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=12)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train, held_out = split_and_scale(make_table(args.rows, args.seed))
    loader = DataLoader(HideDataset(train), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = PriceModel(len(NUMERIC), args.width, args.depth, args.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(loader))
    loss_fn = nn.HuberLoss()
    for epoch in range(args.epochs):
        loss = train_epoch(model, loader, optimizer, scheduler, loss_fn)
        print(f"epoch {epoch}: huber {loss:.4f}, held-out RMSE {evaluate(model, held_out):.4f}")


if __name__ == "__main__":
    main()

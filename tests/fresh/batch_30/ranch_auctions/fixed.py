"""Predict the hammer price of cattle lots from an auction ledger with a transformer over the columns."""

import argparse

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NUMERIC = ["weight", "age_months", "height", "back_fat", "rib_eye", "days_on_feed", "lot_size", "distance", "grain"]
CATEGORICAL = {"breed": 14, "sex": 3, "market": 22, "pasture": 6, "weekday": 7}


def make_ledger(rows, seed):
    rng = np.random.default_rng(seed)
    ledger = pd.DataFrame({name: rng.normal(size=rows) for name in NUMERIC})
    for name, levels in CATEGORICAL.items():
        ledger[name] = rng.integers(0, levels, size=rows)
    breed_value = rng.normal(size=CATEGORICAL["breed"])
    ledger["price"] = (
        0.8 * ledger["weight"]
        - 0.3 * ledger["age_months"].abs()
        + breed_value[ledger["breed"]]
        + 0.2 * ledger["back_fat"] * ledger["rib_eye"]
        + 0.1 * rng.normal(size=rows)
    )
    return ledger


class LotDataset(Dataset):
    def __init__(self, ledger):
        self.numeric = torch.tensor(ledger[NUMERIC].to_numpy(dtype=np.float32))
        self.codes = torch.tensor(ledger[list(CATEGORICAL)].to_numpy(dtype=np.int64))
        self.price = torch.tensor(ledger["price"].to_numpy(dtype=np.float32))

    def __len__(self):
        return len(self.price)

    def __getitem__(self, index):
        return self.numeric[index], self.codes[index], self.price[index]


class ColumnTokens(nn.Module):
    """One token for each column: a scaled direction for a number, an embedding for a code."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(len(NUMERIC), width) * 0.1)
        self.shift = nn.Parameter(torch.zeros(len(NUMERIC), width))
        levels = torch.tensor([0, *CATEGORICAL.values()])
        self.register_buffer("offsets", levels.cumsum(0)[:-1])
        self.codes = nn.Embedding(int(levels.sum()), width)
        self.summary = nn.Parameter(torch.zeros(1, 1, width))

    def forward(self, numeric, codes):
        numbers = numeric.unsqueeze(-1) * self.scale + self.shift
        levels = self.codes(codes + self.offsets)
        return torch.cat([self.summary.expand(len(numeric), -1, -1), numbers, levels], dim=1)


class PriceModel(nn.Module):
    def __init__(self, width, heads, depth):
        super().__init__()
        self.tokens = ColumnTokens(width)
        layer = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, numeric, codes):
        return self.head(self.encoder(self.tokens(numeric, codes))[:, 0]).squeeze(-1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = sum(F.l1_loss(model(numeric, codes), price, reduction="sum") for numeric, codes, price in loader)
    model.train()
    return total.item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2560)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(11)
    ledger = make_ledger(args.rows + 256, seed=11)
    train_loader = DataLoader(LotDataset(ledger[: args.rows]), batch_size=args.batch_size, shuffle=True)
    valid_loader = DataLoader(LotDataset(ledger[args.rows :]), batch_size=256)

    model = PriceModel(args.width, args.heads, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4, fused=True)
    for epoch in range(args.epochs):
        running = torch.zeros(())
        for numeric, codes, price in train_loader:
            loss = F.smooth_l1_loss(model(numeric, codes), price)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
        error = evaluate(model, valid_loader)
        print(f"epoch {epoch}: loss {running.item() / len(train_loader):.4f}, error {error:.4f}")


if __name__ == "__main__":
    main()

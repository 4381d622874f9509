"""Predict the final gravity of a brew from the log of its first two days."""

import argparse

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENSORS = [f"{what}_{hour:02d}h" for what in ("gravity", "temp", "ph", "co2") for hour in range(2, 50, 6)]
RECIPE = ["malt_kg", "hops_g", "water_l", "pitch_rate"]
CATEGORIES = {"yeast": 24, "vessel": 12, "style": 40}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brews", type=int, default=20_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=5)
    return parser.parse_args()


def make_log(brews, seed):
    """A table as it comes out of the brewery's database, with a target that depends on a few columns."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(brews, len(SENSORS))), columns=SENSORS)
    for column in RECIPE:
        table[column] = rng.gamma(3.0, 1.0, size=brews)
    for column, size in CATEGORIES.items():
        table[column] = rng.integers(0, size, size=brews)
    yeast_effect = rng.normal(size=CATEGORIES["yeast"])[table["yeast"]]
    signal = table["gravity_44h"] - 0.5 * table["temp_20h"] * table["ph_08h"] + 0.3 * table["malt_kg"] + yeast_effect
    table["final_gravity"] = signal + rng.normal(scale=0.1, size=brews)
    return table


def standardise(table):
    numeric = SENSORS + RECIPE + ["final_gravity"]
    table[numeric] = (table[numeric] - table[numeric].mean()) / table[numeric].std()
    return table


class BrewDataset(Dataset):
    def __init__(self, table):
        self.numeric = table[SENSORS + RECIPE].to_numpy(dtype=np.float32)
        self.codes = table[list(CATEGORIES)].to_numpy()
        self.target = table["final_gravity"].to_numpy(dtype=np.float32)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, index):
        return self.numeric[index], self.codes[index], self.target[index]


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.inner(self.norm(x))


class GravityNet(nn.Module):
    def __init__(self, hidden, embedding=16, blocks=4):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(size, embedding) for size in CATEGORIES.values()])
        inputs = len(SENSORS) + len(RECIPE) + embedding * len(CATEGORIES)
        self.stem = nn.Linear(inputs, hidden)
        self.blocks = nn.Sequential(*[ResidualBlock(hidden) for _ in range(blocks)])
        self.head = nn.Linear(hidden, 1)

    def forward(self, numeric, codes):
        embedded = [table(codes[:, i]) for i, table in enumerate(self.embeddings)]
        x = self.stem(torch.cat([numeric, *embedded], dim=1))
        return self.head(self.blocks(x)).squeeze(1)


def train_epoch(model, loader, optimizer, scheduler):
    model.train()
    total, seen = torch.zeros(()), 0
    for numeric, codes, target in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.huber_loss(model(numeric, codes), target)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.detach() * len(target)
        seen += len(target)
    return (total / seen).item()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    table = standardise(make_log(args.brews, args.seed))
    loader = DataLoader(BrewDataset(table), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = GravityNet(args.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(loader))
    for epoch in range(args.epochs):
        loss = train_epoch(model, loader, optimizer, scheduler)
        print(f"epoch {epoch}: huber {loss:.4f}")


if __name__ == "__main__":
    main()

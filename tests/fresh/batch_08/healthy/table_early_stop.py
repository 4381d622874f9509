"""House prices from a table: a residual network of perceptrons, stopped when the validation error no longer falls."""

import copy

import numpy as np
import pandas as pd
import torch
from torch import nn


def houses(rows, seed):
    """Numbers and categories with an interaction, as a frame."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": rng.gamma(6, 18, rows),
            "rooms": rng.integers(1, 8, rows),
            "year": rng.integers(1900, 2022, rows),
            "distance": rng.exponential(6, rows),
            "district": rng.choice([f"district {i}" for i in range(40)], rows),
            "heating": rng.choice(["gas", "oil", "pump", "wood"], rows),
        }
    )
    level = frame["district"].str.split().str[1].astype(int) / 20
    price = 2.2 * frame["area"] * (1 + level) - 4 * frame["distance"] + (frame["year"] - 1950) * 0.8
    return frame, (price * rng.normal(1, 0.05, rows)).to_numpy(dtype=np.float32)


def encode(frame, target):
    """One tensor of standardised numbers, one of category codes, one of standardised targets."""
    numbers = frame.select_dtypes("number").to_numpy(dtype=np.float32)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    codes = np.stack([pd.factorize(frame[name], sort=True)[0] for name in ("district", "heating")], 1)
    target = (target - target.mean()) / target.std()
    return torch.from_numpy(numbers), torch.from_numpy(codes), torch.from_numpy(target)


class Block(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(dim), nn.Linear(dim, hidden), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(hidden, dim)
        )

    def forward(self, x):
        return x + self.net(x)


class TableNet(nn.Module):
    def __init__(self, numbers, sizes, dim=128, blocks=3):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 8) for size in sizes)
        self.first = nn.Linear(numbers + 8 * len(sizes), dim)
        self.blocks = nn.Sequential(*(Block(dim, 2 * dim) for _ in range(blocks)))
        self.last = nn.Sequential(nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, numbers, codes):
        embedded = [table(code) for table, code in zip(self.tables, codes.unbind(1))]
        return self.last(self.blocks(self.first(torch.cat([numbers, *embedded], 1)))).squeeze(1)


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.waited, self.state = patience, float("inf"), 0, None

    def ended(self, error, model):
        if error < self.best:
            self.best, self.waited, self.state = error, 0, copy.deepcopy(model.state_dict())
        else:
            self.waited += 1
        return self.waited >= self.patience


def main():
    torch.manual_seed(0)
    parts = encode(*houses(45_000, 1))
    split = [40_000, 5_000]
    train, held_out = zip(*(part.split(split) for part in parts))
    model = TableNet(4, (40, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3, fused=True)
    stopping = EarlyStopping(patience=4)
    for epoch in range(9):
        model.train()
        for index in torch.randperm(split[0]).split(512):
            numbers, codes, target = (part[index] for part in train)
            loss = nn.functional.mse_loss(model(numbers, codes), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            error = nn.functional.mse_loss(model(held_out[0], held_out[1]), held_out[2]).item()
        print(f"epoch {epoch}: validation error {error:.4f}")
        if stopping.ended(error, model):
            break
    model.load_state_dict(stopping.state)
    print(f"best {stopping.best:.4f}")


if __name__ == "__main__":
    main()

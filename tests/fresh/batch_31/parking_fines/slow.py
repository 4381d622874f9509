"""Estimate how much of a parking fine gets paid, from a table of numbers and codes."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    rows: int = 60_000
    numeric: int = 18
    cardinalities: tuple = (70, 24, 7, 300)
    embedding: int = 12
    hidden: int = 256
    dropout: float = 0.1
    batch_size: int = 1536
    epochs: int = 7
    lr: float = 2e-3
    seed: int = 17


def make_table(config: Config) -> pd.DataFrame:
    rng = np.random.default_rng(config.seed)
    numbers = rng.normal(size=(config.rows, config.numeric)).astype(np.float32)
    frame = pd.DataFrame(numbers, columns=[f"n{i}" for i in range(config.numeric)])
    effects = np.zeros(config.rows)
    for place, cardinality in enumerate(config.cardinalities):
        codes = rng.integers(0, cardinality, config.rows)
        frame[f"c{place}"] = codes
        effects += rng.normal(0, 0.4, cardinality)[codes]
    signal = numbers[:, 0] * numbers[:, 1] + np.tanh(numbers[:, 2]) + effects
    frame["paid"] = (signal + rng.normal(0, 0.3, config.rows)).astype(np.float32)
    return frame


class FineTable(Dataset):
    """The columns of the table as tensors."""

    def __init__(self, frame: pd.DataFrame, config: Config):
        numeric = [f"n{i}" for i in range(config.numeric)]
        codes = [f"c{i}" for i in range(len(config.cardinalities))]
        values = torch.from_numpy(frame[numeric].to_numpy(np.float32).copy())
        self.numeric = (values - values.mean(0)) / values.std(0)
        self.codes = torch.from_numpy(frame[codes].to_numpy(np.int64).copy())
        self.target = torch.from_numpy(frame["paid"].to_numpy(np.float32).copy())

    def __len__(self) -> int:
        return len(self.target)

    def __getitem__(self, index):
        return self.numeric[index], self.codes[index], self.target[index]


class Residual(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.down(self.dropout(torch.relu(self.up(self.norm(x)))))


class FineRegressor(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(n, config.embedding) for n in config.cardinalities)
        inputs = config.numeric + config.embedding * len(config.cardinalities)
        self.enter = nn.Linear(inputs, config.hidden)
        self.blocks = nn.Sequential(*(Residual(config.hidden, config.dropout) for _ in range(2)))
        self.leave = nn.Sequential(nn.LayerNorm(config.hidden), nn.ReLU(), nn.Linear(config.hidden, 1))

    def forward(self, numeric, codes):
        embedded = [embed(codes[:, place]) for place, embed in enumerate(self.embeddings)]
        x = self.enter(torch.cat([numeric, *embedded], dim=1))
        return self.leave(self.blocks(x)).squeeze(1)


def build_loader(dataset: FineTable, config: Config) -> DataLoader:
    generator = torch.Generator().manual_seed(config.seed)
    return DataLoader(dataset, batch_size=config.batch_size, shuffle=True, drop_last=True, generator=generator)


@torch.no_grad()
def r_squared(model: FineRegressor, dataset: FineTable) -> float:
    model.eval()
    predicted = model(dataset.numeric, dataset.codes)
    residual = (dataset.target - predicted).square().sum()
    return float(1 - residual / (dataset.target - dataset.target.mean()).square().sum())


def main(config: Config) -> None:
    torch.manual_seed(config.seed)
    frame = make_table(config)
    held_out = frame.sample(frac=0.1, random_state=config.seed)
    train_set = FineTable(frame.drop(held_out.index), config)
    test_set = FineTable(held_out, config)
    loader = build_loader(train_set, config)
    model = FineRegressor(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.lr, total_steps=config.epochs * len(loader))
    for epoch in range(config.epochs):
        model.train()
        running = torch.zeros(())
        for numeric, codes, target in loader:
            loss = nn.functional.huber_loss(model(numeric, codes), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.detach()
        print(f"epoch {epoch}: huber {running / len(loader):.4f}")
    print(f"R^2 on held-out fines: {r_squared(model, test_set):.3f}")


if __name__ == "__main__":
    main(Config())

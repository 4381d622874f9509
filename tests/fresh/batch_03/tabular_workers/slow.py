"""Income prediction from a table that fits into memory: embeddings of categories next to numbers."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


@dataclass
class Config:
    rows: int = 16384
    categories: tuple = (9, 16, 7, 15, 6, 42)
    numeric: int = 6
    hidden: int = 96
    batch_size: int = 256
    num_workers: int = 4
    epochs: int = 12
    lr: float = 2e-3


class TabularNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(n, min(8, (n + 1) // 2)) for n in config.categories])
        width = sum(table.embedding_dim for table in self.embeddings) + config.numeric
        self.layers = nn.Sequential(
            nn.BatchNorm1d(width),
            nn.Linear(width, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, 1),
        )

    def forward(self, categories, numbers):
        parts = [table(column) for table, column in zip(self.embeddings, categories.unbind(dim=1))]
        return self.layers(torch.cat([*parts, numbers], dim=1)).squeeze(1)


def make_table(config):
    categories = torch.stack([torch.randint(0, n, (config.rows,)) for n in config.categories], dim=1)
    numbers = torch.randn(config.rows, config.numeric)
    score = numbers[:, 0] * numbers[:, 1] + (categories[:, 0] > 4).float() + 0.1 * categories[:, 2] - 1
    return TensorDataset(categories, numbers, (score + 0.3 * torch.randn(config.rows) > 0).float())


def make_loader(dataset, config):
    # The sampler hands out whole batches of rows, which the dataset indexes in one go.
    sampler = BatchSampler(RandomSampler(dataset), config.batch_size, drop_last=True)
    return DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=config.num_workers)


def fit(config):
    torch.manual_seed(130)
    loader = make_loader(make_table(config), config)
    model = TabularNet(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(config.epochs):
        total = 0.0
        for categories, numbers, labels in loader:
            loss = criterion(model(categories, numbers), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch:2d} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    fit(Config())

"""Will a loan be paid back? A multilayer perceptron over 60 numeric columns held in memory."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_table(rows, columns, seed):
    gen = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, columns, generator=gen)
    weights = torch.randn(columns, generator=gen)
    label = (features @ weights + torch.randn(rows, generator=gen) > 0).float()
    return features, label


class Scorer(nn.Module):
    def __init__(self, columns, width=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(columns, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(width, width),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--epochs", type=int, default=18)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    features, label = make_table(args.rows, 60, seed=1)
    loader = DataLoader(TensorDataset(features, label), batch_size=args.batch_size, shuffle=True, drop_last=True)

    model = Scorer(60)
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        start, total, batches = time.time(), torch.zeros(()), 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            batches += 1
        print(f"epoch {epoch}: loss {total.item() / batches:.4f} ({time.time() - start:.1f} s)")


if __name__ == "__main__":
    main()

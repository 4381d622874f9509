"""Patterns of failed dies on wafers (as in WM-811K) with a residual network, trained by a small Trainer class."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

PATTERNS = ["none", "centre", "edge_ring", "scratch", "local"]


def wafers(count, size, seed):
    """0 outside the wafer, 1 for a good die and 2 for a failed one, as three planes."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    radius = np.hypot(yy, xx)
    label = rng.integers(0, len(PATTERNS), count)
    maps = np.empty((count, size, size), dtype=np.int64)
    for i, kind in enumerate(label):
        chance = np.full((size, size), 0.05)
        if kind == 1:
            chance += 0.6 * (radius < rng.uniform(0.2, 0.4))
        elif kind == 2:
            chance += 0.6 * (radius > rng.uniform(0.8, 0.88))
        elif kind == 3:
            angle, offset = rng.uniform(0, np.pi), rng.uniform(-0.4, 0.4)
            chance += 0.8 * (np.abs(np.cos(angle) * yy + np.sin(angle) * xx - offset) < 0.04)
        elif kind == 4:
            cy, cx = rng.uniform(-0.6, 0.6, 2)
            chance += 0.7 * (np.hypot(yy - cy, xx - cx) < 0.2)
        maps[i] = 1 + (rng.random((size, size)) < chance)
        maps[i][radius > 1] = 0
    return TensorDataset(torch.from_numpy(maps), torch.from_numpy(label))


class Residual(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1)
        self.norm1, self.norm2 = nn.GroupNorm(8, cout), nn.GroupNorm(8, cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride) if stride > 1 or cin != cout else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class WaferNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Residual(3, 32, 2), Residual(32, 64, 2), Residual(64, 64), Residual(64, 96, 2))
        self.head = nn.Linear(96, len(PATTERNS))

    def forward(self, maps):
        planes = F.one_hot(maps, 3).permute(0, 3, 1, 2).float()
        return self.head(self.blocks(planes).mean((2, 3)))


class Trainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=5e-4)

    def accuracy(self, maps, labels):
        with torch.no_grad():
            return (self.model(maps).argmax(1) == labels).float().mean().item()

    def train_step(self, maps, labels):
        logits = self.model(maps)
        loss = F.cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), self.accuracy(maps, labels)

    def fit(self, train, test, epochs):
        for epoch in range(epochs):
            loss, accuracy = np.mean([self.train_step(*batch) for batch in train], axis=0)
            tested = np.mean([self.accuracy(*batch) for batch in test])
            print(f"epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.3f}, of the test {tested:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wafers", type=int, default=1200)
    parser.add_argument("--size", type=int, default=56)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.03)
    args = parser.parse_args()
    torch.manual_seed(9)
    train = DataLoader(wafers(args.wafers, args.size, seed=1), args.batch_size, shuffle=True)
    test = DataLoader(wafers(120, args.size, seed=2), 120)
    Trainer(WaferNet(), args.lr).fit(train, test, args.epochs)


if __name__ == "__main__":
    main()

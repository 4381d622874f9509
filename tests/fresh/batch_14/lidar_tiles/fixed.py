"""Classifies airborne lidar tiles by land cover with a small PointNet."""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES = ("ground", "shrub", "forest", "building", "water")


@dataclass
class TileConfig:
    tiles: int = 60
    returns: int = 90_000
    points: int = 512
    seed: int = 11


def make_tile(rng, label, returns):
    """One tile: x, y, z and intensity of all its returns."""
    xy = rng.random((returns, 2), dtype=np.float32)
    slope = rng.normal(0, 0.2, size=2).astype(np.float32)
    z = xy @ slope
    if CLASSES[label] == "shrub":
        z = z + 0.1 * rng.random(returns, dtype=np.float32)
    elif CLASSES[label] == "forest":
        z = z + 0.9 * rng.random(returns, dtype=np.float32) ** 2
    elif CLASSES[label] == "building":
        z = z + 0.5 * ((xy[:, 0] > 0.4) & (xy[:, 1] < 0.7))
    intensity = rng.normal(0.2 * label, 0.3, size=returns).astype(np.float32)
    return np.column_stack([xy, z, intensity]).astype(np.float32)


class LidarTiles(Dataset):
    """Draws a fixed number of returns of a tile each time that the tile is asked for."""

    def __init__(self, config, train=True):
        self.config = config
        self.train = train
        self.rng = np.random.default_rng(config.seed + (0 if train else 1))
        count = config.tiles if train else config.tiles // 4
        self.labels = self.rng.integers(0, len(CLASSES), size=count)
        self.tiles = [make_tile(self.rng, label, config.returns) for label in self.labels]
        self.repeats = 12 if train else 1

    def __len__(self):
        return len(self.tiles) * self.repeats

    def __getitem__(self, index):
        tile = self.tiles[index % len(self.tiles)]
        chosen = self.rng.choice(len(tile), self.config.points, replace=False)
        points = tile[chosen]
        points[:, :3] -= points[:, :3].mean(axis=0)
        if self.train:
            angle = self.rng.uniform(0, 2 * np.pi)
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], dtype=np.float32)
            points[:, :2] = points[:, :2] @ turn
        return torch.from_numpy(points), int(self.labels[index % len(self.tiles)])


class SharedMLP(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x):
        batch, points, _ = x.shape
        x = self.linear(x).reshape(batch * points, -1)
        return F.relu(self.norm(x)).reshape(batch, points, -1)


class PointNet(nn.Module):
    def __init__(self, features=4, classes=5):
        super().__init__()
        self.local = nn.Sequential(SharedMLP(features, 48), SharedMLP(48, 64), SharedMLP(64, 192))
        self.head = nn.Sequential(nn.Linear(192, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, classes))

    def forward(self, points):
        return self.head(self.local(points).amax(dim=1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = seen = 0
    for points, labels in loader:
        right += (model(points).argmax(1) == labels).sum().item()
        seen += len(labels)
    model.train()
    return right / seen


def train(args):
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    config = TileConfig(seed=args.seed)
    train_loader = DataLoader(LidarTiles(config), batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(LidarTiles(config, train=False), batch_size=args.batch_size)
    model = PointNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        start, total = time.time(), 0.0
        for points, labels in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(points), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        accuracy = evaluate(model, test_loader)
        print(
            f"epoch {epoch}: loss {total / len(train_loader):.4f}, accuracy {accuracy:.3f}, {time.time() - start:.1f} s"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=11)
    train(parser.parse_args())

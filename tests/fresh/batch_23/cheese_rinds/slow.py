"""Grades the rinds of ripening cheeses from camera images, with a small residual network."""

from __future__ import annotations

import argparse
import os
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def seed_all(seed: int) -> None:
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_rinds(count: int, side: int, grades: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, grades, (count,), generator=generator)
    images = torch.randn(count, 3, side, side, generator=generator)
    spots = torch.rand(count, 1, side, side, generator=generator) < 0.02 * (labels.view(-1, 1, 1, 1) + 1)
    return TensorDataset(images + 2.0 * spots, labels)


class ConvUnit(nn.Module):
    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(after)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.conv(maps)))


class RindBlock(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.down = ConvUnit(before, after, stride=2)
        self.inner = nn.Sequential(ConvUnit(after, after), nn.Conv2d(after, after, 3, padding=1))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        maps = self.down(maps)
        return torch.relu(maps + self.inner(maps))


class RindNet(nn.Module):
    def __init__(self, grades: int, width: int) -> None:
        super().__init__()
        self.stem = ConvUnit(3, width)
        self.blocks = nn.Sequential(
            RindBlock(width, 2 * width),
            RindBlock(2 * width, 4 * width),
            RindBlock(4 * width, 4 * width),
        )
        self.head = nn.Linear(4 * width, grades)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(images)).mean(dim=(2, 3)))


class Average:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, value: float, count: int) -> None:
        self.total += value * count
        self.count += count

    @property
    def value(self) -> float:
        return self.total / max(self.count, 1)


def train(model: RindNet, loader: DataLoader, optimizer: torch.optim.Optimizer, epochs: int) -> None:
    criterion = nn.CrossEntropyLoss()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=epochs * len(loader))
    for epoch in range(epochs):
        losses, started = Average(), time.perf_counter()
        for images, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.add(loss.item(), len(labels))
        print(f"epoch {epoch}: loss {losses.value:.4f}, {time.perf_counter() - started:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=768)
    parser.add_argument("--side", type=int, default=40)
    parser.add_argument("--grades", type=int, default=5)
    parser.add_argument("--width", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    seed_all(29)
    torch.set_num_threads(args.threads)
    data = make_rinds(args.images, args.side, args.grades, seed=29)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = RindNet(args.grades, args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    train(model, loader, optimizer, args.epochs)


if __name__ == "__main__":
    main()

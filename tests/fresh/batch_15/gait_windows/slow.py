"""Gait of walkers from inertial sensors: augmented windows, a 1D residual network, early stopping on macro F1."""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

GAITS = ("level", "stairs up", "stairs down", "limp")


def walk(subjects, seconds, rate, seed=0):
    """Six channels per subject and gait: harmonics of the step frequency with noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(seconds * rate) / rate
    recordings = []
    for subject in range(subjects):
        for gait in range(len(GAITS)):
            frequency = rng.uniform(1.5, 2.1) - 0.15 * gait
            gain = rng.uniform(0.5, 1.5, (6, 1))
            phase = rng.uniform(0, 2 * np.pi, (6, 1))
            signal = gain * np.sin(2 * np.pi * frequency * t + phase)
            signal += 0.3 * gait * np.sin(4 * np.pi * frequency * t + 2 * phase) * gain
            signal += 0.5 * rng.standard_normal(signal.shape)
            recordings.append((subject, gait, signal.astype(np.float32)))
    return recordings


def random_rotation():
    """A rotation matrix about a random axis by up to half a radian."""
    axis = np.random.standard_normal(3)
    x, y, z = axis / np.linalg.norm(axis)
    angle = np.random.uniform(-0.5, 0.5)
    skew = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * skew + (1 - np.cos(angle)) * skew @ skew


class GaitWindows(Dataset):
    def __init__(self, recordings, length, hop, augment):
        self.length, self.augment = length, augment
        self.windows = [
            (signal[:, start : start + length], gait)
            for _, gait, signal in recordings
            for start in range(0, signal.shape[1] - length + 1, hop)
        ]

    def __len__(self):
        return len(self.windows)

    def warp(self, window):
        """Stretches time smoothly by a random curve."""
        knots = np.random.uniform(0.8, 1.2, 6)
        speed = np.interp(np.arange(self.length), np.linspace(0, self.length - 1, 6), knots)
        path = np.cumsum(speed)
        path = (path - path[0]) / (path[-1] - path[0]) * (self.length - 1)
        return np.stack([np.interp(path, np.arange(self.length), channel) for channel in window])

    def __getitem__(self, index):
        window, gait = self.windows[index]
        if self.augment:
            window = self.warp(window)
            rotation = random_rotation()
            window = np.concatenate([rotation @ window[:3], rotation @ window[3:]])
            window = window * np.random.normal(1, 0.1, (6, 1)) + np.random.normal(0, 0.05, window.shape)
        return torch.from_numpy(window.astype(np.float32)), gait


def seed_worker(_):
    np.random.seed(torch.initial_seed() % 2**32)


class Block(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(inside, outside, 7, padding=3, bias=False),
            nn.BatchNorm1d(outside),
            nn.ReLU(),
            nn.Conv1d(outside, outside, 5, padding=2, bias=False),
            nn.BatchNorm1d(outside),
        )
        self.short = nn.Conv1d(inside, outside, 1)

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class GaitNet(nn.Module):
    def __init__(self, classes, widths=(32, 48, 64)):
        super().__init__()
        blocks, inside = [], 6
        for width in widths:
            blocks += [Block(inside, width), nn.MaxPool1d(2)]
            inside = width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(inside, classes))

    def forward(self, x):
        return self.head(self.blocks(x).mean(2))


@torch.no_grad()
def macro_f1(model, loader):
    model.eval()
    confusion = torch.zeros(len(GAITS), len(GAITS))
    for x, y in loader:
        cells = y * len(GAITS) + model(x).argmax(1)
        confusion += torch.bincount(cells, minlength=confusion.numel()).view_as(confusion)
    model.train()
    return (2 * confusion.diag() / (confusion.sum(0) + confusion.sum(1)).clamp(min=1)).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--subjects", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=160)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--patience", type=int, default=24)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)

    recordings = walk(args.subjects, seconds=20, rate=50)
    held_out = args.subjects - 2
    train_set = GaitWindows([r for r in recordings if r[0] < held_out], args.length, args.length // 2, augment=True)
    val_set = GaitWindows([r for r in recordings if r[0] >= held_out], args.length, args.length // 2, augment=False)
    options = dict(
        batch_size=args.batch_size,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
    )
    train_loader = DataLoader(train_set, shuffle=True, drop_last=True, **options)
    val_loader = DataLoader(val_set, **options)

    model = GaitNet(len(GAITS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    best, waited = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for x, y in train_loader:
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
            score = macro_f1(model, val_loader)
            print(f"epoch {epoch:2d} loss {total / len(train_loader):.4f} f1 {score:.3f}")
            waited = 0 if score > best else waited + 1
            if score > best:
                best = score
                torch.save(model.state_dict(), Path(folder) / "gait.pt")
            if waited >= args.patience:
                break
    print(f"best f1 {best:.3f}")


if __name__ == "__main__":
    main()

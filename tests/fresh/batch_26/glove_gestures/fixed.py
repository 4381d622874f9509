"""Gestures from a glove with bending sensors: warped windows from worker processes, a one-dimensional ResNet."""

import argparse

import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

GESTURES = 10


def record(count, channels, length, seed):
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, length, dtype=np.float32)
    labels = rng.integers(0, GESTURES, count)
    speed = 1 + labels[:, None] % 5 + np.arange(channels) % 3
    shift = rng.uniform(0, 0.2, (count, channels, 1)).astype(np.float32)
    signals = np.sin(2 * np.pi * speed[:, :, None] * (time + shift)) * (1 + (labels >= 5))[:, None, None]
    return (signals + 0.3 * rng.normal(size=signals.shape)).astype(np.float32), labels


class GloveWindows(Dataset):
    """Each window is stretched in time, scaled and disturbed anew whenever it is read."""

    def __init__(self, signals, labels, warp=0.15):
        self.signals, self.labels, self.warp = signals, labels, warp
        self.time = np.linspace(0, 1, signals.shape[2], dtype=np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        signal = self.signals[index]
        bent = self.time + self.warp * np.random.uniform(-1, 1) * np.sin(np.pi * self.time) * self.time
        warped = np.stack([np.interp(bent, self.time, channel) for channel in signal])
        warped *= np.random.uniform(0.8, 1.2, size=(len(signal), 1))
        return torch.from_numpy(warped.astype(np.float32)), int(self.labels[index])


class Residual1d(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv1d(inputs, outputs, 5, stride, 2, bias=False)
        self.norm1 = nn.BatchNorm1d(outputs)
        self.conv2 = nn.Conv1d(outputs, outputs, 5, 1, 2, bias=False)
        self.norm2 = nn.BatchNorm1d(outputs)
        self.short = nn.Conv1d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.short(x))


class GloveNet(nn.Module):
    def __init__(self, channels, width):
        super().__init__()
        self.blocks = nn.Sequential(
            Residual1d(channels, width, 1), Residual1d(width, 2 * width, 2), Residual1d(2 * width, 2 * width, 2)
        )
        self.classify = nn.Linear(2 * width, GESTURES)

    def forward(self, x):
        return self.classify(self.blocks(x).mean(dim=2))


def get_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=384)
    parser.add_argument("--channels", type=int, default=12)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=26)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    return parser.parse_args()


def main():
    args = get_args()
    torch.manual_seed(6)
    windows = GloveWindows(*record(args.windows, args.channels, args.length, seed=6))
    loader = DataLoader(
        windows, args.batch, shuffle=True, drop_last=True, num_workers=args.workers, persistent_workers=True
    )
    net = GloveNet(args.channels, args.width)
    optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(1, args.epochs + 1):
        total, right = torch.zeros(()), torch.zeros((), dtype=torch.long)
        for signals, labels in loader:
            scores = net(signals)
            loss = F.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            right += (scores.detach().argmax(dim=1) == labels).sum()
        schedule.step()
        print(f"epoch {epoch:2d}: loss {total / len(loader):.3f}, accuracy {right / len(loader) / args.batch:.3f}")


if __name__ == "__main__":
    main()

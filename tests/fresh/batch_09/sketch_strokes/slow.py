"""Drawings as sequences of pen movements (dx, dy, pen up), classified by a bidirectional LSTM as in sketch-rnn."""

import argparse
import math
import random

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ["circle", "spiral", "zigzag", "flower", "star", "wave"]


def draw(kind, points, rng):
    """Pen positions of one drawing."""
    t = np.linspace(0, 1, points)
    turn = 2 * np.pi * t
    if kind == "circle":
        x, y = np.cos(turn), np.sin(turn)
    elif kind == "spiral":
        x, y = t * np.cos(3 * turn), t * np.sin(3 * turn)
    elif kind == "zigzag":
        x, y = 2 * t - 1, np.abs((8 * t) % 2 - 1)
    elif kind == "flower":
        x, y = np.cos(5 * turn) * np.cos(turn), np.cos(5 * turn) * np.sin(turn)
    elif kind == "star":
        radius = 0.6 + 0.4 * np.abs((10 * t) % 2 - 1)
        x, y = radius * np.cos(turn), radius * np.sin(turn)
    else:
        x, y = 2 * t - 1, 0.5 * np.sin(3 * turn)
    tilt = rng.uniform(-0.5, 0.5)
    positions = np.stack([math.cos(tilt) * x - math.sin(tilt) * y, math.sin(tilt) * x + math.cos(tilt) * y], axis=1)
    return positions * rng.uniform(0.7, 1.3) + rng.normal(0, 0.02, (points, 2))


class Strokes(Dataset):
    def __init__(self, count, longest, seed):
        rng = np.random.default_rng(seed)
        self.drawings, self.labels = [], []
        for _ in range(count):
            label = int(rng.integers(len(CLASSES)))
            positions = draw(CLASSES[label], int(rng.integers(longest // 2, longest)), rng)
            strokes = np.zeros((len(positions), 3), dtype=np.float32)
            strokes[1:, :2] = np.diff(positions, axis=0)
            strokes[:, 2] = rng.random(len(positions)) < 0.05
            strokes[:, :2] /= strokes[:, :2].std()
            self.drawings.append(strokes)
            self.labels.append(label)

    def __len__(self):
        return len(self.drawings)

    def __getitem__(self, i):
        scale = random.uniform(0.9, 1.1)
        strokes = self.drawings[i].copy()
        strokes[:, :2] *= scale
        return strokes, self.labels[i]


class PadStrokes:
    """Pads the drawings of a batch to the longest of them."""

    def __init__(self, end=(0.0, 0.0, 1.0)):
        self.end = end

    def __call__(self, batch):
        drawings, labels = zip(*batch)
        lengths = [len(strokes) for strokes in drawings]
        longest = max(lengths)
        padded = [list(strokes) + [np.array(self.end)] * (longest - len(strokes)) for strokes in drawings]
        return torch.tensor(padded, dtype=torch.float32), torch.tensor(lengths), torch.tensor(labels)


class SketchClassifier(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(3, 48, 5, 2, 2), nn.ReLU(), nn.Conv1d(48, 64, 5, 2, 2), nn.ReLU())
        self.lstm = nn.LSTM(64, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(CLASSES))

    def forward(self, strokes, lengths):
        features = self.conv(strokes.transpose(1, 2)).transpose(1, 2)
        hidden, _ = self.lstm(features)
        steps = torch.arange(hidden.shape[1])
        inside = (steps[None, :] * 4 < lengths[:, None]).unsqueeze(-1)
        return self.out((hidden * inside).sum(1) / inside.sum(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--drawings", type=int, default=4096)
    parser.add_argument("--longest", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    loader = DataLoader(
        Strokes(args.drawings, args.longest, seed=8), args.batch_size, shuffle=True, collate_fn=PadStrokes()
    )
    model = SketchClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(args.epochs):
        total, hits = 0.0, 0
        for strokes, lengths, labels in loader:
            logits = model(strokes, lengths)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            hits += (logits.argmax(1) == labels).sum().item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f} accuracy {hits / args.drawings:.3f}")


if __name__ == "__main__":
    main()

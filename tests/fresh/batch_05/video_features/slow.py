"""Action recognition: a CNN turns the frames of each clip into features once, an LSTM learns from their sequences."""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Extractor(nn.Module):
    """Stands for the convolutional part of a network that was trained on pictures."""

    def __init__(self, features):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, features, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )

    @torch.inference_mode()
    def extract(self, frames):
        return self.layers(frames).numpy()


def render_clip(label, frames, size, rng):
    """A square that moves in one of eight directions over noise."""
    angle = 2 * np.pi * label / 8
    clip = rng.random((frames, 3, size, size), dtype=np.float32) * 0.3
    x, y = rng.integers(size // 4, size // 2, 2)
    for frame in range(frames):
        left = int(x + frame * np.cos(angle)) % (size - 6)
        top = int(y + frame * np.sin(angle)) % (size - 6)
        clip[frame, label % 3, top : top + 6, left : left + 6] = 1.0
    return clip


def extract_features(folder, args):
    """Writes one file for each clip, so that training need not see the pictures again."""
    rng = np.random.default_rng(41)
    extractor = Extractor(args.features).eval()
    items = []
    for number in range(args.clips):
        label = number % 8
        clip = torch.from_numpy(render_clip(label, args.seq_length, 32, rng))
        path = folder / f"v{number:04d}-{args.seq_length}-features.txt"
        np.savetxt(path, extractor.extract(clip))
        items.append((path, label))
    return items


class FeatureSequences(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        path, label = self.items[index]
        sequence = np.loadtxt(path, dtype=np.float32)
        return torch.from_numpy(sequence), label


class SequenceClassifier(nn.Module):
    def __init__(self, features, hidden, classes=8):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.lstm = nn.LSTM(features, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes))

    def forward(self, sequences):
        outputs, _ = self.lstm(self.norm(sequences))
        return self.head(outputs[:, -1])


def evaluate(model, loader):
    model.eval()
    right = seen = 0
    with torch.inference_mode():
        for sequences, labels in loader:
            right += (model(sequences).argmax(dim=1) == labels).sum().item()
            seen += len(labels)
    model.train()
    return right / seen


def train(args, folder):
    items = extract_features(folder, args)
    random.Random(0).shuffle(items)
    held_out = len(items) // 10
    loader = DataLoader(FeatureSequences(items[held_out:]), batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(FeatureSequences(items[:held_out]), batch_size=held_out)
    model = SequenceClassifier(args.features, args.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6, fused=True)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for sequences, labels in loader:
            loss = criterion(model(sequences), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if epoch % 8 == 7:
            print(f"epoch {epoch}: loss {total.item() / len(loader):.4f} accuracy {evaluate(model, test_loader):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=240)
    parser.add_argument("--seq_length", type=int, default=24)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=192)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=24)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as directory:
        train(arguments, Path(directory))

"""Strokes of swimmers in short clips: a convolutional encoder for frames, an LSTM over time, clip accuracy."""

import argparse
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

STROKES = ("freestyle", "backstroke", "breaststroke", "butterfly")


@dataclass
class Config:
    clips: int = 440
    frames: int = 16
    size: int = 40
    batch_size: int = 8
    epochs: int = 4
    lr: float = 1e-3
    hidden: int = 96
    seed: int = 0


def film(count, frames, size, seed):
    """A bright swimmer crosses the pool; the stroke decides how the arms swing."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, len(STROKES), (count,), generator=g)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    time = torch.arange(frames)
    clips = (50 * torch.rand(count, frames, 3, size, size, generator=g)).to(torch.uint8)
    for i in range(count):
        pace = 0.6 + 0.15 * label[i] + 0.1 * torch.rand((), generator=g)
        start = torch.rand((), generator=g) * 0.6 - 0.8
        place = (start + 0.06 * time)[:, None, None]
        swing = 0.3 * torch.sin(pace * time)[:, None, None]
        body = torch.exp(-((x - place) ** 2 + y**2) / 0.02)
        arms = torch.exp(-((x - place) ** 2 + (y - swing) ** 2) / 0.01)
        other = torch.exp(-((x - place) ** 2 + (y + (swing if label[i] % 2 else 0.5)) ** 2) / 0.01)
        clips[i, :, 0] += (150 * body).to(torch.uint8)
        clips[i, :, 1] += (150 * arms).to(torch.uint8)
        clips[i, :, 2] += (150 * other).to(torch.uint8)
    return clips, label


class ClipDataset(Dataset):
    """Clips as bytes; training clips are mirrored at random."""

    def __init__(self, clips, labels, train):
        self.clips, self.labels, self.train = clips, labels, train

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        clip = self.clips[index].float().div_(127.5).sub_(1)
        if self.train and torch.rand(()) < 0.5:
            clip = clip.flip(-2)
        return clip, self.labels[index]


class FrameEncoder(nn.Module):
    def __init__(self, width=16, dim=96):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1),
            nn.GroupNorm(4, width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, 2, 1),
            nn.GroupNorm(4, 4 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * width, dim),
        )

    def forward(self, frames):
        return self.layers(frames)


class StrokeNet(nn.Module):
    def __init__(self, classes, hidden, dim=96):
        super().__init__()
        self.encoder = FrameEncoder(dim=dim)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True)
        self.classifier = nn.Sequential(nn.Dropout(0.3), nn.Linear(hidden, classes))

    def forward(self, clips):
        features = []
        for t in range(clips.size(1)):
            features.append(self.encoder(clips[:, t]))
        output, _ = self.lstm(torch.stack(features, dim=1))
        return self.classifier(output.mean(1))


class Trainer:
    def __init__(self, cfg, model, train_loader, val_loader):
        self.cfg, self.model = cfg, model
        self.train_loader, self.val_loader = train_loader, val_loader
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
        self.best = 0.0

    def fit(self, folder):
        for epoch in range(self.cfg.epochs):
            loss = self.train_epoch()
            accuracy = self.validate()
            print(f"[{epoch + 1}/{self.cfg.epochs}] loss {loss:.4f} accuracy {accuracy:.3f}")
            if accuracy >= self.best:
                self.best = accuracy
                torch.save(self.model.state_dict(), os.path.join(folder, "best.pth"))

    def train_epoch(self):
        self.model.train()
        total = torch.zeros(())
        for clips, labels in self.train_loader:
            loss = self.criterion(self.model(clips), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(self.train_loader)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        right = sum((self.model(clips).argmax(1) == labels).sum().item() for clips, labels in self.val_loader)
        return right / len(self.val_loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    parser.add_argument("--batch-size", type=int, default=Config.batch_size)
    args = parser.parse_args()
    cfg = Config(epochs=args.epochs, batch_size=args.batch_size)
    torch.manual_seed(cfg.seed)
    train_set = ClipDataset(*film(cfg.clips, cfg.frames, cfg.size, seed=1), train=True)
    val_set = ClipDataset(*film(40, cfg.frames, cfg.size, seed=2), train=False)
    train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, cfg.batch_size)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(cfg, StrokeNet(len(STROKES), cfg.hidden), train_loader, val_loader).fit(folder)


if __name__ == "__main__":
    main()

"""Grades of alpaca fleece from photographs of staples on a sorting table."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

GRADES = ["royal", "baby", "superfine", "medium", "strong"]


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=480)
    parser.add_argument("--source-size", type=int, default=288)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def write_photographs(folder, count, size, seed):
    rng = np.random.default_rng(seed)
    across = np.linspace(0, 1, size, dtype=np.float32)
    for number in range(count):
        grade = int(rng.integers(len(GRADES)))
        crimp = 6 + 5 * grade + rng.normal()
        waves = np.sin(2 * np.pi * crimp * across + rng.uniform(0, 6))
        picture = 128 + 70 * waves[None, :] * np.cos(3 * across)[:, None]
        colours = picture[:, :, None] * rng.uniform(0.7, 1.1, size=3) + rng.normal(0, 8, size=(size, size, 3))
        image = Image.fromarray(colours.clip(0, 255).astype(np.uint8))
        image.save(folder / f"{number:04d}_{GRADES[grade]}.bmp")


class FleecePhotographs(Dataset):
    def __init__(self, folder, size):
        self.paths = sorted(folder.glob("*.bmp"))
        self.labels = [GRADES.index(path.stem.split("_")[1]) for path in self.paths]
        self.resize = transforms.Resize((size, size), antialias=True)
        self.photographs = []
        for path in self.paths:
            with Image.open(path) as image:
                self.photographs.append(self.resize(image.convert("RGB")))
        self.augment = transforms.Compose(
            [
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
            ]
        )

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        photograph = self.photographs[index]
        return self.augment(photograph), self.labels[index]


class Block(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
            nn.Conv2d(outer, outer, 3, padding=1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.short = nn.Conv2d(inner, outer, 1, stride=2, bias=False)

    def forward(self, x):
        return torch.relu(self.path(x) + self.short(x))


class FleeceNet(nn.Module):
    def __init__(self, grades):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(Block(16, 32), Block(32, 64), Block(64, 96))
        self.head = nn.Linear(96, grades)

    def forward(self, images):
        return self.head(self.blocks(torch.relu(self.stem(images))).mean(dim=(2, 3)))


def train_epoch(model, loader, optimizer, criterion):
    model.train()
    total, right = 0.0, 0
    for images, labels in loader:
        optimizer.zero_grad()
        scores = model(images)
        loss = criterion(scores, labels)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
        right += (scores.argmax(dim=1) == labels).sum().item()
    return total / len(loader.dataset), right / len(loader.dataset)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photographs(folder, args.images, args.source_size, args.seed)
        dataset = FleecePhotographs(folder, args.size)
        loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
        model = FleeceNet(len(GRADES))
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
        for epoch in range(args.epochs):
            loss, accuracy = train_epoch(model, loader, optimizer, nn.CrossEntropyLoss())
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()

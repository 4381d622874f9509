"""Breeds of horses from photos in class folders: a small residual network, SGD with a one-cycle schedule."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

BREEDS = {"arabian": (150, 90, 60), "friesian": (40, 35, 40), "haflinger": (200, 150, 90), "shire": (110, 100, 95)}
MEAN, STD = (0.45, 0.47, 0.40), (0.22, 0.22, 0.22)


def take_photos(root, per_breed, seed):
    """Writes JPEG files: a meadow with one animal in the colour of its breed."""
    rng = np.random.default_rng(seed)
    for breed, colour in BREEDS.items():
        folder = Path(root) / breed
        folder.mkdir(parents=True)
        for number in range(per_breed):
            grass = rng.integers(60, 160, size=(30, 40, 3)) * np.array([0.7, 1.0, 0.5])
            photo = Image.fromarray(grass.astype(np.uint8)).resize((480, 360), Image.BILINEAR)
            draw = ImageDraw.Draw(photo)
            x, y = rng.integers(40, 200), rng.integers(40, 140)
            tint = tuple(int(c) for c in np.clip(np.array(colour) + rng.integers(-25, 25, 3), 0, 255))
            draw.ellipse((x, y, x + 200, y + 110), fill=tint)
            for leg in (30, 70, 130, 165):
                draw.rectangle((x + leg, y + 90, x + leg + 12, y + 190), fill=tint)
            photo.save(folder / f"{number:04d}.jpg", quality=90)


def build_transforms(size):
    train = transforms.Compose(
        [
            transforms.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3, hue=0.05),
            transforms.RandomRotation(12),
            transforms.RandomHorizontalFlip(),
            transforms.Resize(size + 16),
            transforms.RandomCrop(size),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    test = transforms.Compose(
        [
            transforms.Resize((size, size)),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    return train, test


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class BreedNet(nn.Module):
    def __init__(self, classes, width=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU(True))
        self.blocks = nn.Sequential(
            Residual(width, width, 2), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2)
        )
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


@torch.no_grad()
def test(model, loader):
    model.eval()
    right = sum((model(images).argmax(1) == labels).sum() for images, labels in loader)
    model.train()
    return int(right) / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(3)

    with tempfile.TemporaryDirectory() as root:
        take_photos(Path(root) / "train", 76, seed=1)
        take_photos(Path(root) / "test", 10, seed=2)
        train_transform, test_transform = build_transforms(args.size)
        train_set = ImageFolder(Path(root) / "train", train_transform)
        test_set = ImageFolder(Path(root) / "test", test_transform)
        options = dict(batch_size=args.batch_size, num_workers=args.workers, persistent_workers=True)
        train_loader = DataLoader(train_set, shuffle=True, drop_last=True, **options)
        test_loader = DataLoader(test_set, **options)

        model = BreedNet(len(train_set.classes))
        optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
        steps = args.epochs * len(train_loader)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps)
        criterion = nn.CrossEntropyLoss()
        best = 0.0
        for epoch in range(args.epochs):
            start, total = time.time(), torch.zeros(())
            for images, labels in train_loader:
                loss = criterion(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                total += loss.detach()
            top1 = test(model, test_loader)
            print(f"epoch {epoch}: loss {total / len(train_loader):.4f} top-1 {top1:.3f} {time.time() - start:.1f}s")
            if top1 >= best:
                best = top1
                torch.save(model.state_dict(), Path(root) / "best.pt")


if __name__ == "__main__":
    main()

"""Tells the workshops of carved carousel horses apart from photographs."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


@dataclass
class Settings:
    workshops: int = 6
    photographs: int = 168
    width: int = 384
    height: int = 288
    crop: int = 80
    batch_size: int = 8
    epochs: int = 3
    lr: float = 0.05
    seed: int = 11


def paint_photographs(folder: Path, settings: Settings) -> None:
    """Each workshop has a palette and a rhythm of stripes."""
    rng = np.random.default_rng(settings.seed)
    palettes = rng.integers(40, 215, (settings.workshops, 2, 3))
    rows, columns = np.mgrid[: settings.height, : settings.width]
    for number in range(settings.photographs):
        workshop = number % settings.workshops
        angle = rng.uniform(0, np.pi)
        wave = np.sin((rows * np.cos(angle) + columns * np.sin(angle)) / (6 + 3 * workshop))
        share = (wave[..., None] + 1) / 2
        image = palettes[workshop, 0] * share + palettes[workshop, 1] * (1 - share)
        image = image + rng.normal(0, 12, image.shape)
        target = folder / f"{workshop}_{number:04d}.jpg"
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(target, quality=88)


class HorsePhotographs(Dataset):
    def __init__(self, folder: Path, transform):
        self.paths = sorted(folder.glob("*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with Image.open(path) as image:
            pixels = self.transform(image.convert("RGB"))
        return pixels, int(path.stem.split("_")[0])


def training_transform(settings: Settings):
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(settings.crop, scale=(0.3, 1.0)),
            transforms.ColorJitter(0.4, 0.4, 0.3, 0.1),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ]
    )


class Block(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.norm1(self.first(x)))
        return torch.relu(self.norm2(self.second(y)) + self.short(x))


class WorkshopNet(nn.Module):
    def __init__(self, workshops: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.blocks = nn.Sequential(Block(16, 24, 1), Block(24, 48, 2), Block(48, 96, 2))
        self.head = nn.Linear(96, workshops)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def train(folder: Path, settings: Settings) -> None:
    torch.manual_seed(settings.seed)
    dataset = HorsePhotographs(folder, training_transform(settings))
    loader = DataLoader(dataset, batch_size=settings.batch_size, shuffle=True, drop_last=True)
    model = WorkshopNet(settings.workshops)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs * len(loader))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(settings.epochs):
        total, right = 0.0, 0
        for pixels, labels in loader:
            logits = model(pixels)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
            right += (logits.argmax(1) == labels).sum().item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}, accuracy {right / len(dataset):.3f}")


if __name__ == "__main__":
    settings = Settings()
    with tempfile.TemporaryDirectory() as name:
        paint_photographs(Path(name), settings)
        train(Path(name), settings)

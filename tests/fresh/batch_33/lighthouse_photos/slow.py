"""Which lighthouse is on a photograph: a small ResNet on a folder of JPEG files."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

MEAN, STD = (0.46, 0.52, 0.61), (0.22, 0.21, 0.23)


def draw_lighthouse(rng: np.random.Generator, kind: int) -> Image.Image:
    """Sky, sea and a tower whose bands and lantern tell its kind."""
    width, height = 512, 384
    sky = np.linspace(120, 220, height)[:, None, None] + rng.normal(0, 6, (height, width, 3))
    image = Image.fromarray(np.clip(sky * np.array([0.75, 0.9, 1.05]), 0, 255).astype("uint8"))
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 275, width, height), fill=(30, 70 + int(rng.integers(40)), 110))
    left, top = int(rng.integers(130, 320)), int(rng.integers(48, 102))
    bands = 2 + kind
    step = (320 - top) / bands
    for band in range(bands):
        colour = (225, 225, 220) if band % 2 else ((190, 40, 40), (30, 30, 30), (20, 60, 150))[kind % 3]
        pen.rectangle((left, top + band * step, left + 56, top + (band + 1) * step), fill=colour)
    pen.ellipse((left + 8, top - 34, left + 48, top + 3), fill=(250, 230, 90 + 10 * kind))
    return image


def write_photos(folder: Path, per_class: int, classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for kind in range(classes):
        place = folder / f"tower_{kind}"
        place.mkdir(parents=True)
        for number in range(per_class):
            draw_lighthouse(rng, kind).save(place / f"{number:04d}.jpg", quality=88)


def make_augmentation(size: int) -> transforms.Compose:
    return transforms.Compose(
        [
            transforms.RandomCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


class LighthousePhotos(Dataset):
    """A folder for each tower, with its photographs in it."""

    def __init__(self, root: Path, size: int):
        self.towers = sorted(place.name for place in root.iterdir())
        self.paths = sorted(root.glob("*/*.jpg"))
        self.shrink = transforms.Resize((size * 9 // 8, size * 3 // 2))
        self.augment = make_augmentation(size)

    def load(self, path: Path) -> Image.Image:
        return self.shrink(Image.open(path).convert("RGB"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        image = self.load(path)
        return self.augment(image), self.towers.index(path.parent.name)


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.skip(x))


class TowerNet(nn.Module):
    def __init__(self, classes: int, width: int = 16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = nn.Sequential(
            Residual(width, width, 1),
            Residual(width, 2 * width, 2),
            Residual(2 * width, 4 * width, 2),
            Residual(4 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


def fit(model: nn.Module, loader: DataLoader, args: argparse.Namespace) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        model.train()
        total = torch.zeros(())
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.05)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        schedule.step()
        print(f"epoch {epoch + 1}/{args.epochs}  loss {total.item() / len(loader):.3f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--per-class", type=int, default=20)
    parser.add_argument("--size", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), args.per_class, args.classes, args.seed)
        dataset = LighthousePhotos(Path(folder), args.size)
        loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
        fit(TowerNet(args.classes), loader, args)


if __name__ == "__main__":
    main()

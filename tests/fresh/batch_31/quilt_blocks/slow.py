"""Tell quilt patterns apart on photographs from a folder, one folder per pattern."""

import argparse
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional as TF

PATTERNS = ["log_cabin", "flying_geese", "nine_patch", "pinwheel", "churn_dash", "bear_paw"]


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos-per-pattern", type=int, default=40)
    parser.add_argument("--width", type=int, default=400)
    parser.add_argument("--height", type=int, default=300)
    parser.add_argument("--image-size", type=int, default=72)
    parser.add_argument("--crop-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=11)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=5)
    return parser.parse_args()


def write_photos(root, args):
    rng = np.random.default_rng(args.seed)
    rows, columns = np.mgrid[0 : args.height, 0 : args.width]
    for label, pattern in enumerate(PATTERNS):
        folder = root / pattern
        folder.mkdir(parents=True)
        for number in range(args.photos_per_pattern):
            size = rng.integers(20, 45)
            patches = (rows // size * (label + 1) + columns // size * (6 - label)) % 5
            colours = rng.integers(30, 226, size=(5, 3))
            photo = colours[patches] + rng.normal(0, 14, size=(args.height, args.width, 3))
            Image.fromarray(photo.clip(0, 255).astype(np.uint8)).save(folder / f"{number:03d}.jpg", quality=90)


class QuiltFolder(Dataset):
    """Photographs below a root, each labelled by the folder that it lies in."""

    def __init__(self, root, image_size, crop_size):
        self.image_size = image_size
        self.crop_size = crop_size
        self.samples = [(path, PATTERNS.index(path.parent.name)) for path in sorted(root.glob("*/*.jpg"))]

    def load(self, path):
        with Image.open(path) as photo:
            return photo.convert("RGB").resize((self.image_size, self.image_size), Image.BILINEAR)

    def augment(self, image):
        top = random.randint(0, self.image_size - self.crop_size)
        left = random.randint(0, self.image_size - self.crop_size)
        image = TF.crop(image, top, left, self.crop_size, self.crop_size)
        return TF.hflip(image) if random.random() < 0.5 else image

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        image = self.augment(self.load(path))
        return TF.normalize(TF.to_tensor(image), [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]), label


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class QuiltNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(Block(24, 32, 1), Block(32, 64, 2), Block(64, 96, 2))
        self.classify = nn.Linear(96, classes)

    def forward(self, x):
        return self.classify(self.blocks(self.stem(x)).mean(dim=(2, 3)))


def train(args, root):
    dataset = QuiltFolder(root, args.image_size, args.crop_size)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = QuiltNet(len(PATTERNS))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(args.epochs):
        total = 0.0
        for images, labels in loader:
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}")


def main():
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    root = Path(tempfile.mkdtemp(prefix="quilts_"))
    try:
        write_photos(root, args)
        train(args, root)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()

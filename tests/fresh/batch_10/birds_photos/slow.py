"""Kinds of birds from photographs of a camera trap: large JPEG files, cropped, and a small network."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def photographs(folder, count, kinds, seed):
    """Writes pictures of birds, blurred spots of a colour, before leaves."""
    rng = np.random.default_rng(seed)
    colours = rng.uniform(0, 255, (kinds, 3))
    y, x = np.mgrid[:768, :1024].astype(np.float32)
    for n in range(count):
        kind = n % kinds
        leaves = Image.fromarray(rng.integers(0, 255, (48, 64, 3), np.uint8)).resize((1024, 768), Image.BICUBIC)
        cx, cy = rng.uniform(300, 700), rng.uniform(250, 500)
        bird = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 20_000)[..., None]
        picture = np.asarray(leaves) * (1 - bird) + colours[kind] * bird
        Image.fromarray(picture.astype(np.uint8)).save(folder / f"{n:04d}_{kind}.jpg", quality=90)


class BirdDataset(Dataset):
    def __init__(self, folder, size):
        self.paths = sorted(folder.glob("*.jpg"))
        self.size = size
        self.augment = transforms.Compose(
            [
                transforms.Resize(size + 16),
                transforms.RandomCrop(size),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with Image.open(path) as picture:
            picture = picture.convert("RGB")
        return self.augment(picture), int(path.stem.split("_")[1])


class Depthwise(nn.Sequential):
    def __init__(self, inputs, outputs, stride):
        super().__init__(
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class BirdNet(nn.Module):
    def __init__(self, kinds, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            Depthwise(width, 2 * width, 2),
            Depthwise(2 * width, 4 * width, 2),
            Depthwise(4 * width, 8 * width, 2),
        )
        self.head = nn.Linear(8 * width, kinds)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def train(model, loader, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        total = right = torch.zeros(())
        for pictures, kind in loader:
            logits = model(pictures)
            loss = F.cross_entropy(logits, kind, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = total + loss.detach()
            right = right + (logits.detach().argmax(1) == kind).float().mean()
        print(f"epoch {epoch}: loss {total.item() / len(loader):.4f} accuracy {right.item() / len(loader):.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--photographs", type=int, default=64)
    parser.add_argument("--kinds", type=int, default=8)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        photographs(Path(folder), args.photographs, args.kinds, seed=5)
        data = BirdDataset(Path(folder), args.size)
        loader = DataLoader(
            data,
            args.batch_size,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
        )
        train(BirdNet(args.kinds), loader, args)


if __name__ == "__main__":
    main()

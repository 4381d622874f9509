"""Finds tumour cells in tiles of stained tissue: augmented pictures, a small residual network, a one-cycle schedule."""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Tiles(Dataset):
    """Stained tiles as PIL opens them; the nuclei of tumour cells are larger and darker."""

    def __init__(self, count, transform, seed):
        draw = np.random.default_rng(seed)
        self.labels = draw.integers(0, 2, count)
        tiles = draw.normal(200, 15, (count, 96, 96, 3))
        for tile, label in zip(tiles, self.labels):
            for y, x in draw.integers(8, 80, (12, 2)):
                side = 6 + 5 * label
                tile[y : y + side, x : x + side] -= (60, 90, 30)
        self.tiles = tiles.clip(0, 255).astype(np.uint8)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.tiles[index])), int(self.labels[index])


class Block(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, 2, 1, bias=False)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.short = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(inner, outer, 1, bias=False))
        self.norms = nn.ModuleList([nn.BatchNorm2d(outer), nn.BatchNorm2d(outer)])

    def forward(self, x):
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return F.relu(y + self.short(x))


def loaders(args):
    rescale = [transforms.ToTensor(), transforms.Normalize((0.75, 0.7, 0.78), (0.1, 0.15, 0.08))]
    augment = [
        transforms.RandomAffine(20, translate=(0.1, 0.1), fill=200),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.2, 0.2, 0.2, 0.05),
    ]
    train = Tiles(1280, transforms.Compose(augment + rescale), args.seed)
    valid = Tiles(128, transforms.Compose(rescale), args.seed + 1)
    options = {"batch_size": args.batch_size, "num_workers": args.workers, "persistent_workers": args.workers > 0}
    return DataLoader(train, shuffle=True, drop_last=True, **options), DataLoader(valid, batch_size=64)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    right = sum((model(x.to(device)).argmax(1) == y.to(device)).sum() for x, y in loader)
    model.train()
    return right.item() / len(loader.dataset)


def main():
    args = parse()
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, valid = loaders(args)
    model = nn.Sequential(Block(3, 16), Block(16, 32), Block(32, 64), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = model.append(nn.Linear(64, 2)).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train))
    for epoch in range(args.epochs):
        started = time.time()
        for images, labels in train:
            images = images.to(device, memory_format=torch.channels_last)
            with torch.autocast(device, dtype=torch.bfloat16):
                scores = model(images)
            loss = F.cross_entropy(scores.float(), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: {evaluate(model, valid, device):.3f} right, {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()

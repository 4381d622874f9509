"""Counting and finding sea lions in aerial pictures: a small U-Net says where they lie, a second head how many."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class SeaLions(Dataset):
    def __init__(self, count, size=48, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.number = torch.randint(0, 12, (count,), generator=g)
        self.images = 0.4 * torch.randn(count, 3, size, size, generator=g)
        self.maps = torch.zeros(count, 1, size, size)
        for image, spots, n in zip(self.images, self.maps, self.number.tolist()):
            for y, x in torch.randint(2, size - 3, (n, 2), generator=g).tolist():
                image[:, y - 1 : y + 2, x - 2 : x + 3] -= 1.0
                spots[:, y - 1 : y + 2, x - 1 : x + 2] = 1.0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.maps[i], self.number[i].float()


class LocatingNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()

        def double(a, b):
            first = nn.Conv2d(a, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU()
            return nn.Sequential(*first, nn.Conv2d(b, b, 3, 1, 1), nn.BatchNorm2d(b), nn.ReLU())

        self.inc, self.down = double(3, width), double(width, 2 * width)
        self.bottom, self.up = double(2 * width, 2 * width), double(4 * width, width)
        self.outc = nn.Conv2d(2 * width, 1, 1)
        self.regress = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 1), nn.Softplus())

    def forward(self, x):
        a = self.inc(x)
        b = self.down(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        y = self.up(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        y = self.outc(torch.cat([F.interpolate(y, scale_factor=2), a], 1))
        return y, self.regress(c.mean((2, 3)) + c.amax((2, 3))).squeeze(1)


class Criterion(nn.Module):
    def __init__(self, weight=0.1):
        super().__init__()
        self.weight = weight

    def forward(self, output, target):
        logits, number = output
        where, wanted = target
        loss = F.binary_cross_entropy_with_logits(logits, where, pos_weight=torch.tensor(4.0))
        return loss + self.weight * F.smooth_l1_loss(number, wanted)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--train-size", type=int, default=512)
    parser.add_argument("--val-size", type=int, default=192)
    return parser.parse_args()


def validate(model, loader):
    model.eval()
    hits = found = errors = 0.0
    with torch.no_grad():
        for image, where, number in loader:
            logits, estimate = model(image)
            spots = logits > 0
            hits += (spots & (where > 0.5)).sum().item()
            found += (spots.sum() + where.sum()).item()
            errors += (estimate - number).abs().sum().item()
    model.train()
    return 2 * hits / max(found, 1), errors / len(loader.dataset)


def main():
    args = parse()
    torch.manual_seed(0)
    trainset, valset = SeaLions(args.train_size), SeaLions(args.val_size, seed=1)
    trainset_loader = DataLoader(trainset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    valset_loader = DataLoader(valset, batch_size=1)
    model, criterion = LocatingNet(), Criterion()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, amsgrad=True)
    lowest = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            for image, where, number in trainset_loader:
                loss = criterion(model(image), (where, number))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            f1, mae = validate(model, valset_loader)
            print(f"epoch {epoch}: loss {loss.item():.4f} f1 {f1:.3f} mae {mae:.3f}")
            if mae < lowest:
                lowest = mae
                torch.save(model.state_dict(), Path(folder) / "best.ckpt")


if __name__ == "__main__":
    main()

"""Which part of an urn a scanned sherd comes from: a network over points, after even sampling of the scan."""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PARTS = ["rim", "neck", "shoulder", "belly", "foot", "handle"]


def scan_sherd(part, points, rng):
    """A patch of a surface of revolution, or a piece of a bent tube for the handle."""
    u = rng.random(points) * rng.uniform(0.4, 1.2)
    v = rng.beta(0.8, 1.3, points)
    name = PARTS[part]
    if name == "handle":
        bend = 1.2 * v
        ring = 2 * np.pi * u
        tube = 0.16 + 0.02 * np.cos(3 * ring)
        x = (1 + tube * np.cos(ring)) * np.cos(bend)
        y = (1 + tube * np.cos(ring)) * np.sin(bend)
        z = tube * np.sin(ring)
    else:
        outline = {
            "rim": 0.9 + 0.25 * v**4,
            "neck": 0.6 + 0.05 * np.cos(3 * v),
            "shoulder": 0.6 + 0.5 * np.sin(1.5 * v),
            "belly": 1.1 - 0.25 * (v - 0.5) ** 2,
            "foot": 0.5 + 0.3 * (1 - v) ** 2,
        }[name]
        x, y, z = outline * np.cos(u), outline * np.sin(u), 0.8 * v
    cloud = np.stack([x, y, z], axis=1) + 0.012 * rng.standard_normal((points, 3))
    turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    return (cloud @ turn).astype(np.float32)


def farthest_point_sample(points, count):
    """Takes the point that is farthest from all taken so far, again and again."""
    distance = np.full(len(points), np.inf, dtype=np.float32)
    chosen = np.zeros(count, dtype=np.int64)
    farthest = 0
    for i in range(count):
        chosen[i] = farthest
        offset = points - points[farthest]
        distance = np.minimum(distance, (offset * offset).sum(-1))
        farthest = int(distance.argmax())
    return points[chosen]


def normalise(points):
    points = points - points.mean(axis=0)
    return points / np.sqrt((points**2).sum(axis=1)).max()


class SherdScans(Dataset):
    def __init__(self, scans, parts, num_points, augment):
        self.scans = scans
        self.parts = parts
        self.num_points = num_points
        self.augment = augment

    def __len__(self):
        return len(self.scans)

    def __getitem__(self, index):
        points = normalise(farthest_point_sample(self.scans[index], self.num_points))
        if self.augment:
            angle = np.random.uniform(0, 2 * np.pi)
            cos, sin = np.cos(angle), np.sin(angle)
            turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]], dtype=np.float32)
            points = points @ turn + np.random.normal(0, 0.01, points.shape).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(points.T)), self.parts[index]


class SherdNet(nn.Module):
    def __init__(self, parts, width=64):
        super().__init__()
        self.local = nn.Sequential(
            nn.Conv1d(3, width, 1), nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, 2 * width, 1), nn.ReLU()
        )
        self.joint = nn.Sequential(
            nn.Conv1d(2 * width, 4 * width, 1), nn.BatchNorm1d(4 * width), nn.ReLU(), nn.Conv1d(4 * width, 256, 1)
        )
        self.head = nn.Sequential(nn.Linear(256, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, parts))

    def forward(self, points):
        return self.head(self.joint(self.local(points)).amax(dim=2))


def train_epoch(model, loader, optimizer, scheduler):
    model.train()
    losses = []
    for points, parts in loader:
        loss = F.cross_entropy(model(points), parts, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model(points).argmax(1) == parts).sum() for points, parts in loader)
    return right.item() / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sherds", type=int, default=560)
    parser.add_argument("--scan-points", type=int, default=1000)
    parser.add_argument("--num-points", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=440)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    rng = np.random.default_rng(args.seed)
    parts = rng.integers(len(PARTS), size=args.sherds)
    scans = [scan_sherd(part, args.scan_points, rng) for part in parts]
    border = int(0.85 * args.sherds)
    train_set = SherdScans(scans[:border], parts[:border], args.num_points, augment=True)
    test_set = SherdScans(scans[border:], parts[border:], args.num_points, augment=False)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=42)

    model = SherdNet(len(PARTS))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train_loader))
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            loss = train_epoch(model, train_loader, optimizer, scheduler)
            accuracy = evaluate(model, test_loader)
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")
            torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(folder, "checkpoint.pt"))


if __name__ == "__main__":
    main()

"""Polyps in endoscopy frames: mapped arrays on disk, batches read and turned as a whole, a compact U-Net."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_frames(folder, name, count, size, seed):
    """Reddish frames with a bump in most of them; bytes on disk."""
    rng = np.random.default_rng(seed)
    axis = np.linspace(-1, 1, size)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    centre = rng.uniform(-0.5, 0.5, (count, 2, 1, 1))
    radius = rng.uniform(0.15, 0.4, (count, 2, 1, 1))
    distance = ((x - centre[:, 0]) / radius[:, 0]) ** 2 + ((y - centre[:, 1]) / radius[:, 1]) ** 2
    mask = (distance < 1) & (rng.random((count, 1, 1)) < 0.85)
    frames = rng.integers(60, 140, (count, 3, size, size)) * np.array([1.2, 0.6, 0.5])[:, None, None]
    frames += 40 * mask[:, None]
    np.save(folder / f"{name}_frames.npy", frames.clip(0, 255).astype(np.uint8))
    np.save(folder / f"{name}_masks.npy", mask.astype(np.uint8))


class MappedBatches:
    def __init__(self, folder, name, batch_size, train):
        self.frames = np.load(folder / f"{name}_frames.npy", mmap_mode="r")
        self.masks = np.load(folder / f"{name}_masks.npy", mmap_mode="r")
        self.batch_size, self.train = batch_size, train
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return len(self.frames) // self.batch_size

    def __iter__(self):
        order = self.rng.permutation(len(self.frames)) if self.train else np.arange(len(self.frames))
        for i in range(len(self)):
            index = np.sort(order[i * self.batch_size : (i + 1) * self.batch_size])
            frames = torch.from_numpy(self.frames[index]).float().div_(127.5).sub_(1)
            masks = torch.from_numpy(self.masks[index]).float().unsqueeze(1)
            if self.train:
                turns = int(self.rng.integers(4))
                frames, masks = frames.rot90(turns, (2, 3)), masks.rot90(turns, (2, 3))
                frames = frames * (1 + 0.1 * torch.randn(len(frames), 1, 1, 1))
            yield frames.contiguous(memory_format=torch.channels_last), masks


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


class CompactUNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.enc1, self.enc2, self.enc3 = block(width, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.dec2, self.dec1 = block(6 * width, 2 * width), block(3 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.enc1(self.stem(x))
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.enc3(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([b, F.interpolate(c, scale_factor=2.0)], 1))
        a = self.dec1(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))
        return F.interpolate(self.out(a), scale_factor=2.0, mode="bilinear", align_corners=False)


def tversky_loss(logits, masks, alpha=0.3):
    p = logits.sigmoid()
    hit = (p * masks).sum((1, 2, 3))
    wrong, missed = p.sum((1, 2, 3)) - hit, masks.sum((1, 2, 3)) - hit
    return 1 - ((hit + 1) / (hit + alpha * wrong + (1 - alpha) * missed + 1)).mean()


@torch.inference_mode()
def mean_iou(model, batches):
    model.eval()
    values = []
    for frames, masks in batches:
        predicted, target = model(frames) > 0, masks > 0.5
        both, either = (predicted & target).sum((1, 2, 3)), (predicted | target).sum((1, 2, 3))
        values.append((both + 1e-6) / (either + 1e-6))
    model.train()
    return torch.cat(values).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make_frames(folder, "train", 960, args.size, 1)
        make_frames(folder, "test", 96, args.size, 2)
        train = MappedBatches(folder, "train", args.batch_size, train=True)
        test = MappedBatches(folder, "test", args.batch_size, train=False)
        model = CompactUNet().to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
        scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, args.epochs * len(train), power=0.9)
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for frames, masks in train:
                logits = model(frames)
                loss = F.binary_cross_entropy_with_logits(logits, masks) + tversky_loss(logits, masks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                total += loss.detach()
            print(f"epoch {epoch} loss {total / len(train):.4f} iou {mean_iou(model, test):.3f}")
            torch.save(model.state_dict(), folder / f"polyps_{epoch}.pt")


if __name__ == "__main__":
    main()

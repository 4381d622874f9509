"""Fills holes of generated textures with a small gated network. Holes come from a large random pattern."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def blobs(size, share, rng, passes=12):
    """A big binary pattern with smooth spots that cover about the given share."""
    field = rng.normal(size=(size, size))
    for _ in range(passes):
        field = (
            field + np.roll(field, 1, 0) + np.roll(field, -1, 0) + np.roll(field, 1, 1) + np.roll(field, -1, 1)
        ) / 5
    return (field > np.quantile(field, 1 - share)).astype(np.uint8)


class Textures(Dataset):
    """Stripes and waves of random direction and colour."""

    def __init__(self, count, size, seed):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[:size, :size].astype(np.float32)
        images = []
        for _ in range(count):
            angle, period = rng.uniform(0, np.pi), rng.uniform(6, 20)
            wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * 2 * np.pi / period + rng.uniform(0, 6))
            colour = rng.uniform(-1, 1, (3, 1, 1))
            images.append((colour * wave).astype(np.float32))
        self.images = torch.from_numpy(np.stack(images))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        return image.flip(-1) if torch.rand(()) < 0.5 else image


class MaskMaker:
    """Windows of the pattern whose holes take between `low` and `high` percent."""

    def __init__(self, size, low, high, pattern_size=1500, seed=0):
        self.rng = np.random.default_rng(seed)
        self.pattern = blobs(pattern_size, 0.25, self.rng)
        self.size, self.low, self.high = size, low, high

    def window(self):
        top, left = self.rng.integers(0, len(self.pattern) - self.size, 2)
        return self.pattern[top : top + self.size, left : left + self.size]

    def one(self):
        while True:
            mask = self.window()
            area = mask.sum() * 100.0 / (self.size * self.size)
            if self.low < area < self.high:
                return mask

    def batch(self, count):
        return torch.from_numpy(np.stack([self.one() for _ in range(count)])).float()[:, None]


class GatedConv(nn.Module):
    def __init__(self, inside, outside, stride=1, dilation=1):
        super().__init__()
        self.conv = nn.Conv2d(inside, 2 * outside, 3, stride, padding=dilation, dilation=dilation)

    def forward(self, x):
        value, gate = self.conv(x).chunk(2, dim=1)
        return F.elu(value) * gate.sigmoid()


class Inpainter(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encode = nn.Sequential(GatedConv(4, width, 2), GatedConv(width, 2 * width, 2))
        self.middle = nn.Sequential(*(GatedConv(2 * width, 2 * width, dilation=d) for d in (1, 2, 4)))
        self.up = GatedConv(2 * width, width)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, image, mask):
        x = self.encode(torch.cat([image * (1 - mask), mask], dim=1))
        x = self.middle(x)
        x = self.up(F.interpolate(x, scale_factor=2.0))
        return torch.tanh(self.last(F.interpolate(x, scale_factor=2.0)))


def reconstruction(output, image, mask):
    hole = ((output - image).abs() * mask).sum() / mask.sum().clamp_min(1) / 3
    rest = ((output - image).abs() * (1 - mask)).mean()
    return 6 * hole + rest


def main():
    parser = argparse.ArgumentParser(description="texture inpainting")
    parser.add_argument("--images", type=int, default=1280)
    parser.add_argument("--fine-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--low", type=float, default=36.0)
    parser.add_argument("--high", type=float, default=44.0)
    opt = parser.parse_args()
    torch.manual_seed(4)
    loader = DataLoader(Textures(opt.images, opt.fine_size, seed=4), opt.batch_size, shuffle=True, drop_last=True)
    masks = MaskMaker(opt.fine_size, opt.low, opt.high, seed=4)
    model = Inpainter(opt.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.9))
    for epoch in range(opt.epochs):
        total = torch.zeros(())
        for image in loader:
            mask = masks.batch(len(image))
            loss = reconstruction(model(image, mask), image, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

"""Roofs in aerial photographs: PNG tiles are decoded once into a memory-mapped array, workers augment crops of it."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def write_tiles(directory, count, size, seed):
    rng = np.random.default_rng(seed)
    for number in range(count):
        ground = rng.integers(60, 120, (size // 8, size // 8, 3)).astype(np.uint8)
        photo = np.asarray(Image.fromarray(ground).resize((size, size), Image.BILINEAR)).copy()
        mask = np.zeros((size, size), dtype=np.uint8)
        for _ in range(rng.integers(4, 9)):
            top, left = rng.integers(0, size - 30, 2)
            height, width = rng.integers(12, 30, 2)
            mask[top : top + height, left : left + width] = 255
            photo[top : top + height, left : left + width] = rng.integers(130, 255, 3)
        noise = rng.normal(scale=6, size=photo.shape)
        Image.fromarray(np.clip(photo + noise, 0, 255).astype(np.uint8)).save(directory / f"photo_{number:03d}.png")
        Image.fromarray(mask).save(directory / f"mask_{number:03d}.png")


def pack(directory):
    """All tiles with their masks as a fourth channel in one file that can be mapped."""
    photos = sorted(directory.glob("photo_*.png"))
    first = np.asarray(Image.open(photos[0]))
    packed = np.lib.format.open_memmap(
        directory / "tiles.npy", mode="w+", dtype=np.uint8, shape=(len(photos), 4, *first.shape[:2])
    )
    for row, photo in enumerate(photos):
        packed[row, :3] = np.asarray(Image.open(photo)).transpose(2, 0, 1)
        packed[row, 3] = np.asarray(Image.open(directory / photo.name.replace("photo", "mask"))) > 127
    packed.flush()
    return directory / "tiles.npy"


class Crops(Dataset):
    def __init__(self, path, crop, per_tile):
        self.path, self.crop, self.per_tile = path, crop, per_tile
        self.tiles = None
        self.count = len(np.load(path, mmap_mode="r"))

    def __len__(self):
        return self.count * self.per_tile

    def __getitem__(self, index):
        if self.tiles is None:
            self.tiles = np.load(self.path, mmap_mode="r")
        tile = self.tiles[index // self.per_tile]
        top, left = torch.randint(tile.shape[1] - self.crop + 1, (2,)).tolist()
        piece = torch.from_numpy(tile[:, top : top + self.crop, left : left + self.crop].copy())
        if torch.rand(()) < 0.5:
            piece = piece.flip(2)
        return torch.rot90(piece, int(torch.randint(4, ())), (1, 2))


class Down(nn.Sequential):
    def __init__(self, inside, outside, stride):
        super().__init__(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
        )


class RoofNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two, self.three = Down(3, width, 2), Down(width, 2 * width, 2), Down(2 * width, 4 * width, 2)
        self.up_two = nn.Conv2d(6 * width, 2 * width, 3, padding=1)
        self.up_one = nn.Conv2d(3 * width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        one = self.one(x)
        two = self.two(one)
        three = self.three(two)
        two = F.relu(self.up_two(torch.cat([F.interpolate(three, scale_factor=2.0), two], 1)))
        one = F.relu(self.up_one(torch.cat([F.interpolate(two, scale_factor=2.0), one], 1)))
        return F.interpolate(self.out(one), scale_factor=2.0, mode="bilinear", align_corners=False)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=int, default=40)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--crop", type=int, default=96)
    parser.add_argument("--per-tile", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_tiles(directory, args.tiles, args.size, seed=1)
        loader = DataLoader(
            Crops(pack(directory), args.crop, args.per_tile),
            batch_size=args.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=1,
            persistent_workers=True,
            prefetch_factor=4,
        )
        model = RoofNet(args.width)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=args.epochs * len(loader))
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for pieces in loader:
                photo = pieces[:, :3].float().div_(255)
                mask = pieces[:, 3:].float()
                logits = model(photo)
                loss = F.binary_cross_entropy_with_logits(logits, mask)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.detach()
            print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

"""Counts of sponges in photographs of the sea floor: JPEG files decoded and augmented by workers, a density head."""

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


def photograph(rng, size):
    ground = rng.integers(40, 90, (size // 8, size // 8, 3), dtype=np.uint8)
    image = Image.fromarray(ground).resize((size, size), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    count = int(rng.integers(2, 25))
    for x, y, r in zip(rng.integers(0, size, count), rng.integers(0, size, count), rng.integers(4, 14, count)):
        draw.ellipse((int(x - r), int(y - r), int(x + r), int(y + r)), fill=(220, int(rng.integers(120, 200)), 60))
    return image, count


def write_photographs(folder, count, size, seed):
    rng = np.random.default_rng(seed)
    counts = np.empty(count, np.float32)
    for index in range(count):
        image, counts[index] = photograph(rng, size)
        image.save(folder / f"{index:04d}.jpg", quality=90)
    np.save(folder / "counts.npy", counts)


class SeaFloor(Dataset):
    """Pictures stay bytes until they are in a batch; flips and the scaling happen on the whole batch."""

    def __init__(self, folder, rows, side):
        self.paths = [folder / f"{row:04d}.jpg" for row in rows]
        self.counts = np.load(folder / "counts.npy")[rows]
        self.side = side

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as image:
            image.draft("RGB", (self.side, self.side))
            pixels = np.asarray(image.convert("RGB").resize((self.side, self.side), Image.Resampling.BILINEAR))
        return torch.from_numpy(pixels.copy()), self.counts[index]


def prepare(pixels, train):
    x = pixels.permute(0, 3, 1, 2).float().sub_(90.0).div_(60.0)
    if train and torch.rand(()) < 0.5:
        x = x.flip(-1)
    return x.contiguous(memory_format=torch.channels_last)


class CountNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        layers, n_in = [], 3
        for n_out in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(n_in, n_out, 3, 2, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
            layers += [nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
            n_in = n_out
        self.body = nn.Sequential(*layers)
        self.density = nn.Conv2d(n_in, 1, 1)

    def forward(self, x):
        return F.softplus(self.density(self.body(x))).mean(dim=(1, 2, 3)) * 20.0


class Engine:
    def __init__(self, model, train_loader, valid_loader, epochs, lr):
        self.model = model.to(memory_format=torch.channels_last)
        self.train_loader, self.valid_loader, self.epochs = train_loader, valid_loader, epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2, fused=True)
        steps = epochs * len(train_loader)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, lr, total_steps=steps)

    def train_epoch(self):
        self.model.train()
        total = torch.zeros(())
        for pixels, counts in self.train_loader:
            loss = F.smooth_l1_loss(self.model(prepare(pixels, train=True)), counts)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach()
        return total.item() / len(self.train_loader)

    @torch.inference_mode()
    def validate(self):
        self.model.eval()
        errors = [(self.model(prepare(p, train=False)) - c).abs() for p, c in self.valid_loader]
        return torch.cat(errors).mean().item()

    def fit(self, path):
        best = math.inf
        for epoch in range(self.epochs):
            start = time.perf_counter()
            loss = self.train_epoch()
            mae = self.validate()
            print(f"epoch {epoch}: loss {loss:.3f}, mae {mae:.2f}, {time.perf_counter() - start:.1f} s")
            if mae < best:
                best = mae
                torch.save(self.model.state_dict(), path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--photographs", type=int, default=480)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photographs(folder, args.photographs, 256, seed=4)
        cut = int(0.85 * args.photographs)
        shared = dict(batch_size=args.batch_size, num_workers=args.workers, persistent_workers=args.workers > 0)
        train = DataLoader(SeaFloor(folder, np.arange(cut), 128), shuffle=True, drop_last=True, **shared)
        valid = DataLoader(SeaFloor(folder, np.arange(cut, args.photographs), 128), **shared)
        Engine(CountNet(), train, valid, args.epochs, args.lr).fit(folder / "best.pt")


if __name__ == "__main__":
    main()

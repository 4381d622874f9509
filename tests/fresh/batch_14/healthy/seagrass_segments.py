"""Seagrass meadows in drone pictures: a small U-Net, evaluated and saved when it got better."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler


class DroneTiles(Dataset):
    """Tiles kept as bytes; asked for a whole batch of indices at a time."""

    def __init__(self, count, size, seed, train):
        generator = torch.Generator().manual_seed(seed)
        coarse = torch.randn(count, 1, size // 8, size // 8, generator=generator)
        self.masks = F.interpolate(coarse, size=(size, size), mode="bilinear").squeeze(1) > 0.2
        light = 90 + 60 * torch.rand(count, 3, 1, 1, generator=generator)
        noise = 40 * torch.randn(count, 3, size, size, generator=generator)
        self.pictures = (light + 50 * self.masks.unsqueeze(1) + noise).clamp(0, 255).to(torch.uint8)
        self.train = train

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, indices):
        pictures = self.pictures[indices].float().div_(127.5).sub_(1)
        masks = self.masks[indices].float()
        if self.train and torch.rand(()) < 0.5:
            pictures, masks = pictures.flip(3), masks.flip(2)
        return pictures, masks


def loader(dataset, batch_size, shuffle):
    order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
    return DataLoader(dataset, sampler=BatchSampler(order, batch_size, drop_last=shuffle), batch_size=None)


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.enter = block(3, width)
        self.down = block(width, 2 * width)
        self.bottom = block(2 * width, 4 * width)
        self.up = block(6 * width, 2 * width)
        self.leave = block(3 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        fine = self.enter(x)
        middle = self.down(F.max_pool2d(fine, 2))
        coarse = self.bottom(F.max_pool2d(middle, 2))
        middle = self.up(torch.cat([F.interpolate(coarse, scale_factor=2.0), middle], dim=1))
        return self.head(self.leave(torch.cat([F.interpolate(middle, scale_factor=2.0), fine], dim=1))).squeeze(1)


@torch.inference_mode()
def intersection_over_union(model, batches):
    model.eval()
    overlap, union = torch.zeros(()), torch.zeros(())
    for pictures, masks in batches:
        predicted, actual = model(pictures) > 0, masks > 0.5
        overlap += (predicted & actual).sum()
        union += (predicted | actual).sum()
    model.train()
    return (overlap / union).item()


def train(args, folder):
    torch.manual_seed(args.seed)
    train_batches = loader(DroneTiles(args.tiles, args.size, args.seed, True), args.batch_size, shuffle=True)
    valid_batches = loader(DroneTiles(args.tiles // 6, args.size, args.seed + 1, False), 32, shuffle=False)
    model = UNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3 * args.lr, total_steps=args.epochs * len(train_batches))
    best, step, started = 0.0, 0, time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, masks in train_batches:
            loss = F.binary_cross_entropy_with_logits(model(pictures), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step % 50 == 0:
                speed = step * args.batch_size / (time.perf_counter() - started)
                print(f"step {step}: loss {loss.item():.4f}, {speed:.0f} tiles a second")
        score = intersection_over_union(model, valid_batches)
        print(f"epoch {epoch}: IoU {score:.3f}")
        if score > best:
            best = score
            torch.save({"model": model.state_dict(), "epoch": epoch}, folder / "best.pt")
    model.load_state_dict(torch.load(folder / "best.pt")["model"])
    print(f"best again: {intersection_over_union(model, valid_batches):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=360)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    with tempfile.TemporaryDirectory() as folder:
        train(parser.parse_args(), Path(folder))

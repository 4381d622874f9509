"""Diseases of leaves with a small ConvNeXt; the loop follows timm's train.py with a config of its own."""

import math
import time
from types import SimpleNamespace

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

cfg = SimpleNamespace(
    images=960, size=64, classes=5, dims=(48, 96), depths=(2, 3), batch_size=24, epochs=2, lr=2e-3, weight_decay=0.05,
    warmup=10,
)  # fmt: skip


def leaves(count, size, classes, seed):
    """Green pictures; the disease decides how many brown spots there are and how large."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    label = torch.randint(0, classes, (count,), generator=g)
    images = torch.tensor([0.2, 0.55, 0.2]).view(1, 3, 1, 1) + 0.05 * torch.randn(count, 3, size, size, generator=g)
    brown = torch.tensor([0.45, 0.3, 0.1]).view(3, 1, 1)
    for i in range(count):
        kind = int(label[i])
        for cy, cx in torch.rand(2 + 3 * kind, 2, generator=g) * 1.8 - 0.9:
            spot = torch.exp(-((y - cy) ** 2 + (x - cx) ** 2) / (0.02 + 0.01 * (kind % 2)))
            images[i] += spot * (brown - images[i])
    return images, label


class Block(nn.Module):
    """Depthwise convolution, then norm and MLP over channels."""

    def __init__(self, dim, scale=0.1):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(scale * torch.ones(dim))

    def forward(self, x):
        shortcut = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1).contiguous()
        x = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(x))))
        x = x.permute(0, 3, 1, 2).contiguous()
        return shortcut + x


class Downsample(nn.Module):
    def __init__(self, dim_in, dim_out, factor):
        super().__init__()
        self.conv = nn.Conv2d(dim_in, dim_out, factor, factor)
        self.norm = nn.GroupNorm(1, dim_out)

    def forward(self, x):
        return self.norm(self.conv(x))


class ConvNeXt(nn.Module):
    def __init__(self, classes, dims, depths):
        super().__init__()
        stages, width = [], 3
        for i, (dim, depth) in enumerate(zip(dims, depths)):
            stages += [Downsample(width, dim, 4 if i == 0 else 2), *(Block(dim) for _ in range(depth))]
            width = dim
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, x):
        return self.head(self.stages(x).mean((2, 3)))


def learning_rate(step, total):
    if step < cfg.warmup:
        return (step + 1) / cfg.warmup
    return 0.5 * (1 + math.cos(math.pi * (step - cfg.warmup) / (total - cfg.warmup)))


def train_one_epoch(epoch, model, loader, optimizer, scheduler, loss_fn):
    start, total, right = time.time(), 0.0, 0
    for images, labels in loader:
        logits = model(images)
        loss = loss_fn(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
        right += (logits.argmax(1) == labels).sum().item()
    speed = len(loader.dataset) / (time.time() - start)
    print(f"Train: {epoch} loss {total / len(loader):.4f} top-1 {right / len(loader.dataset):.3f} {speed:.0f} images/s")


def main():
    torch.manual_seed(42)
    data = TensorDataset(*leaves(cfg.images, cfg.size, cfg.classes, seed=1))
    loader = DataLoader(data, cfg.batch_size, shuffle=True, drop_last=True)
    model = ConvNeXt(cfg.classes, cfg.dims, cfg.depths)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    total = cfg.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate(step, total))
    for epoch in range(cfg.epochs):
        train_one_epoch(epoch, model, loader, optimizer, scheduler, nn.CrossEntropyLoss(label_smoothing=0.1))


if __name__ == "__main__":
    main()

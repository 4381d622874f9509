"""Find cracks in pictures of asphalt: a small encoder and decoder that learns from the hardest pixels."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    pictures: int = 160
    side: int = 160
    batch_size: int = 8
    width: int = 8
    kept: float = 0.07
    epochs: int = 4
    lr: float = 2e-3


def make_pictures(config, seed):
    """Grey noise with thin dark lines that wander, and the mask of these lines."""
    gen = torch.Generator().manual_seed(seed)
    n, side = config.pictures, config.side
    grain = F.interpolate(torch.rand(n, 1, side // 4, side // 4, generator=gen), side, mode="bilinear")
    mask = torch.zeros(n, side, side)
    column = torch.randint(side, (n,), generator=gen)
    for row in range(side):
        column = (column + torch.randint(-2, 3, (n,), generator=gen)).clamp(1, side - 2)
        for shift in (-1, 0, 1):
            mask[torch.arange(n), row, column + shift] = 1
    return grain + 0.1 * torch.randn(grain.shape, generator=gen) - 0.3 * mask[:, None], mask


class HardPixelLoss(nn.Module):
    """Mean cross entropy of the share of pixels with the largest losses."""

    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def forward(self, logits, mask):
        losses = F.binary_cross_entropy_with_logits(logits, mask, reduction="none").flatten()
        count = int(self.kept * losses.numel())
        hardest, _ = torch.sort(losses, descending=True)
        return hardest[:count].mean()


def block(inputs, outputs, stride=1):
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class CrackNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = block(1, width, 2)
        self.down = nn.Sequential(block(width, 2 * width, 2), block(2 * width, 2 * width))
        self.deep = nn.Sequential(block(2 * width, 4 * width, 2), block(4 * width, 4 * width))
        self.up = block(6 * width, 2 * width)
        self.head = nn.Conv2d(3 * width, 4, 3, padding=1)

    def forward(self, x):
        stem = self.stem(x)
        down = self.down(stem)
        deep = F.interpolate(self.deep(down), scale_factor=2)
        up = F.interpolate(self.up(torch.cat([down, deep], 1)), scale_factor=2)
        return F.pixel_shuffle(self.head(torch.cat([stem, up], 1)), 2)[:, 0]


def main(config):
    torch.manual_seed(0)
    pictures, masks = make_pictures(config, seed=8)
    model, criterion = CrackNet(config.width), HardPixelLoss(config.kept)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    steps = config.epochs * (config.pictures // config.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(config.epochs):
        for rows in torch.randperm(config.pictures).split(config.batch_size):
            loss = criterion(model(pictures[rows]), masks[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: loss of hard pixels {loss.item():.4f}")


if __name__ == "__main__":
    main(Config())

"""Objects as points of a heat map: targets are painted once, pictures and targets are mirrored by the batch."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    pictures: int = 1280
    size: int = 64
    classes: int = 3
    objects: int = 4
    batch: int = 16
    epochs: int = 6
    lr: float = 2e-3


def make(cfg, seed=0):
    """Pictures with bright discs, their heat maps at a quarter of the size, and the discs' radii at the centres."""
    g = torch.Generator().manual_seed(seed)
    n, k = cfg.pictures, cfg.objects
    centres = torch.randint(8, cfg.size - 8, (n, k, 2), generator=g).float()
    radii = 3 + 4 * torch.rand(n, k, generator=g)
    kinds = torch.randint(cfg.classes, (n, k), generator=g)
    pictures = 0.1 * torch.randn(n, 3, cfg.size, cfg.size, generator=g)
    small = cfg.size // 4
    heat = torch.zeros(n, cfg.classes, small, small)
    radius = torch.zeros(n, 1, small, small)
    fine, coarse = torch.arange(cfg.size).float(), 4 * torch.arange(small).float() + 1.5
    rows = torch.arange(n)
    for j in range(k):
        y, x = centres[:, j].split(1, 1)
        inside = ((fine - y)[:, :, None] ** 2 + (fine - x)[:, None] ** 2) < radii[:, j, None, None] ** 2
        pictures[rows, kinds[:, j]] += inside
        square = (coarse - y)[:, :, None] ** 2 + (coarse - x)[:, None] ** 2
        bump = torch.exp(-square / (2 * (radii[:, j, None, None] / 2) ** 2))
        heat[rows, kinds[:, j]] = torch.maximum(heat[rows, kinds[:, j]], bump)
        cell = (centres[:, j] / 4).long()
        heat[rows, kinds[:, j], cell[:, 0], cell[:, 1]] = 1.0
        radius[rows, 0, cell[:, 0], cell[:, 1]] = radii[:, j]
    return pictures, heat, radius


class CentreNet(nn.Module):
    def __init__(self, classes, width=24):
        super().__init__()

        def conv(i, o, stride):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        self.body = nn.Sequential(conv(3, width, 2), conv(width, 2 * width, 2), conv(2 * width, 2 * width, 1))
        self.heat = nn.Conv2d(2 * width, classes, 1)
        self.radius = nn.Conv2d(2 * width, 1, 1)
        nn.init.constant_(self.heat.bias, -2.2)

    def forward(self, x):
        h = self.body(x)
        return self.heat(h), self.radius(h)


def focal(logits, target):
    """Penalty-reduced focal loss of CornerNet, from logits."""
    positive = target == 1
    log_p, log_q = F.logsigmoid(logits), F.logsigmoid(-logits)
    probability = log_p.exp()
    own = (1 - probability) ** 2 * log_p
    other = (1 - target) ** 4 * probability**2 * log_q
    return -torch.where(positive, own, other).sum() / positive.sum().clamp(min=1)


def main():
    cfg = Config()
    torch.manual_seed(0)
    data = make(cfg)
    model = CentreNet(cfg.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    for epoch in range(cfg.epochs):
        total = 0.0
        batches = torch.randperm(cfg.pictures).split(cfg.batch)
        for index in batches:
            mirrored = torch.rand(()) < 0.5
            pictures, heat, radius = (part[index].flip(3) if mirrored else part[index] for part in data)
            logits, guess = model(pictures)
            loss = focal(logits, heat) + 0.1 * F.l1_loss(guess[radius > 0], radius[radius > 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(batches):.3f}")


if __name__ == "__main__":
    main()

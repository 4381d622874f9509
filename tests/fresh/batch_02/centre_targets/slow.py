"""Centre-point detection from a bird's eye view of points."""

import tempfile
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Cfg:
    grid: int = 32
    points: int = 1500
    boxes: int = 90
    batch: int = 4
    steps: int = 300
    radius: int = 2
    lr: float = 2e-3


class LidarScenes:
    def __init__(self, cfg, seed=0):
        self.cfg, self.g = cfg, torch.Generator().manual_seed(seed)

    def __iter__(self):
        cfg = self.cfg
        while True:
            centre = torch.rand(cfg.batch, cfg.boxes, 2, generator=self.g) * (cfg.grid - 8) + 4
            size = torch.rand(cfg.batch, cfg.boxes, 2, generator=self.g) * 3 + 1
            owner = torch.randint(0, cfg.boxes, (cfg.batch, cfg.points), generator=self.g)
            rows = torch.arange(cfg.batch)[:, None]
            spread = (torch.rand(cfg.batch, cfg.points, 2, generator=self.g) - 0.5) * size[rows, owner]
            points = centre[rows, owner] + spread
            noise = torch.rand(cfg.batch, cfg.points // 3, 2, generator=self.g) * cfg.grid
            yield torch.cat([points, noise], 1).clamp(0, cfg.grid - 1), torch.cat([centre, size], 2)


def pillars(points, grid):
    cell = points.long()
    index = cell[..., 1] * grid + cell[..., 0]
    ones = torch.ones_like(points[..., 0])
    count = torch.zeros(len(points), grid * grid).scatter_add_(1, index, ones)
    offset = torch.zeros(len(points), grid * grid, 2)
    offset.scatter_add_(1, index[..., None].expand(-1, -1, 2), points - cell)
    features = torch.cat([torch.log1p(count)[..., None], offset / count.clamp(min=1)[..., None]], -1)
    return features.transpose(1, 2).reshape(len(points), 3, grid, grid)


class Backbone(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers, last = [], 3
        for _ in range(4):
            layers += [nn.Conv2d(last, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            last = width
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class CentreHead(nn.Module):
    def __init__(self, cfg, width=24):
        super().__init__()
        self.cfg = cfg
        self.hm, self.reg = nn.Conv2d(width, 1, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        nn.init.constant_(self.hm.bias, -2.19)

    def forward(self, x):
        return {"hm": self.hm(x).squeeze(1), "reg": self.reg(x)}

    def assign_targets(self, boxes):
        cfg = self.cfg
        heat = torch.zeros(len(boxes), cfg.grid, cfg.grid)
        axis = torch.arange(-cfg.radius, cfg.radius + 1)
        blob = torch.exp(-(axis[:, None] ** 2 + axis[None] ** 2) / (2 * (cfg.radius / 2) ** 2))
        for b in range(len(boxes)):
            for k in range(boxes.shape[1]):
                x, y = int(boxes[b, k, 0].item()), int(boxes[b, k, 1].item())
                view = heat[b, y - cfg.radius : y + cfg.radius + 1, x - cfg.radius : x + cfg.radius + 1]
                torch.max(view, blob, out=view)
        cell = boxes[..., :2].long()
        offset = boxes[..., :2] - cell
        return heat, cell, torch.cat([offset, boxes[..., 2:].log()], -1)

    def loss(self, preds, boxes):
        heat, cell, reg = self.assign_targets(boxes)
        p = torch.sigmoid(preds["hm"]).clamp(1e-4, 1 - 1e-4)
        positive = heat > 0.999
        gain = torch.where(positive, (1 - p) ** 2 * p.log(), (1 - heat) ** 4 * p**2 * (1 - p).log())
        rows = torch.arange(len(boxes))[:, None]
        chosen = preds["reg"][rows, :, cell[..., 1], cell[..., 0]]
        return -gain.sum() / positive.sum().clamp(min=1) + F.l1_loss(chosen, reg)


class CentrePoint(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, self.backbone, self.head = cfg, Backbone(), CentreHead(cfg)

    def forward(self, points, boxes):
        return self.head.loss(self.head(self.backbone(pillars(points, self.cfg.grid))), boxes)


def train(cfg):
    torch.manual_seed(0)
    model = CentrePoint(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.steps)
    for it, (points, boxes) in enumerate(LidarScenes(cfg), 1):
        loss = model(points, boxes)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 35)
        optimizer.step()
        scheduler.step()
        if it % 30 == 0:
            print(f"iter {it}/{cfg.steps} loss {loss.item():.4f} lr {scheduler.get_last_lr()[0]:.5f}")
        if it == cfg.steps:
            break
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


if __name__ == "__main__":
    train(Cfg())

"""Finds transits of planets in light curves: self-attention over 768 points in time, gaps in the data masked."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    points: int = 768
    width: int = 64
    heads: int = 2
    depth: int = 1
    batch: int = 8
    epochs: int = 2
    stars: int = 320
    lr: float = 1e-3


class SelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads, self.scale = cfg.heads, 1 / math.sqrt(cfg.width // cfg.heads)
        self.query = nn.Linear(cfg.width, cfg.width)
        self.key = nn.Linear(cfg.width, cfg.width)
        self.value = nn.Linear(cfg.width, cfg.width)
        self.out = nn.Linear(cfg.width, cfg.width)

    def split(self, x):
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, seen):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        weights = F.softmax(scores, dim=-1)
        mixed = torch.matmul(weights.to(v.dtype), v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.attention = SelfAttention(cfg)
        self.first, self.second = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.mlp = nn.Sequential(nn.Linear(cfg.width, 2 * cfg.width), nn.GELU(), nn.Linear(2 * cfg.width, cfg.width))

    def forward(self, x, seen):
        x = x + self.attention(self.first(x), seen)
        return x + self.mlp(self.second(x))


class TransitFinder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.entry = nn.Linear(1, cfg.width)
        self.place = nn.Parameter(0.02 * torch.randn(cfg.points, cfg.width))
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.depth))
        self.exit = nn.Linear(cfg.width, 1)

    def forward(self, light, seen):
        with torch.autocast(light.device.type, dtype=torch.bfloat16):
            x = self.entry(light[:, :, None]) + self.place
            for layer in self.layers:
                x = layer(x, seen[:, None, None, :])
            return self.exit(x).squeeze(2).float()


def curves(cfg, device):
    """Brightness with periodic dips, which points are inside of a dip, and which were observed at all."""
    time = torch.arange(cfg.points)
    period = torch.randint(40, 120, (cfg.stars, 1))
    inside = (time + torch.randint(0, 120, (cfg.stars, 1))) % period < 6
    light = torch.randn(cfg.stars, cfg.points) - 1.5 * inside
    start = torch.randint(0, cfg.points, (cfg.stars, 1))
    seen = (time < start) | (time >= start + 30)
    return [t.to(device) for t in (light * seen, inside.float(), seen)]


def main(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data, model = curves(cfg, device), TransitFinder(cfg).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    for epoch in range(cfg.epochs):
        total, parts = 0.0, torch.randperm(cfg.stars, device=device).split(cfg.batch)
        for rows in parts:
            light, inside, seen = (t[rows] for t in data)
            loss = F.binary_cross_entropy_with_logits(model(light, seen), inside, weight=seen.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        schedule.step()
        print(f"epoch {epoch}: loss {float(total) / len(parts):.4f}")


if __name__ == "__main__":
    main(Config())

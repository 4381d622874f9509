"""A point-cloud generator trained by flow matching, with two averaged copies of its weights for sampling."""

import copy
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Options:
    shapes: int = 600
    points: int = 24
    width: int = 48
    depth: int = 16
    batch: int = 8
    steps: int = 350
    betas: tuple = (0.99, 0.998)
    lr: float = 5e-4


def rings(options, seed=31):
    """Rings in space with random radius, tilt and thickness."""
    generator = torch.Generator().manual_seed(seed)
    count = options.shapes
    angle = torch.rand(count, options.points, generator=generator) * 6.2832
    radius = 0.5 + torch.rand(count, 1, generator=generator)
    flat = torch.stack([radius * angle.cos(), radius * angle.sin(), torch.zeros_like(angle)], dim=-1)
    turn, _ = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator))
    return flat @ turn + 0.03 * torch.randn(count, options.points, 3, generator=generator)


class TimeEmbedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(torch.linspace(0, 5, width // 2)), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t):
        phase = t[:, None] * self.frequencies
        return self.mlp(torch.cat([phase.sin(), phase.cos()], dim=-1))


class Block(nn.Module):
    """Attention between the points and a feed-forward part, both modulated by the time."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.modulate = nn.Linear(width, 2 * width)

    def forward(self, x, condition):
        scale, shift = self.modulate(condition)[:, None].chunk(2, dim=-1)
        h = self.norm1(x) * (1 + scale) + shift
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


class Velocity(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.time = TimeEmbedding(width)
        self.inward = nn.Linear(3, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.outward = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3))

    def forward(self, x, t):
        condition = self.time(t)
        h = self.inward(x)
        for block in self.blocks:
            h = block(h, condition)
        return self.outward(h)


class EMA:
    """Keeps a slowly moving average of a model."""

    def __init__(self, model, beta, update_after=10):
        self.online = model
        self.average = copy.deepcopy(model).requires_grad_(False).eval()
        self.beta, self.update_after, self.count = beta, update_after, 0

    @torch.no_grad()
    def update(self):
        self.count += 1
        beta = 0.0 if self.count <= self.update_after else min(self.beta, self.count / (self.count + 10))
        online = dict(self.online.named_parameters())
        for name, averaged in self.average.named_parameters():
            difference = averaged.data - online[name].data
            difference.mul_(1.0 - beta)
            averaged.data.sub_(difference)

    @torch.no_grad()
    def sample(self, count, points, steps=20):
        x = torch.randn(count, points, 3)
        for i in range(steps):
            x = x + self.average(x, torch.full((count,), i / steps)) / steps
        return x


def main():
    options = Options()
    torch.manual_seed(31)
    data = rings(options)
    model = Velocity(options.width, options.depth)
    averages = [EMA(model, beta) for beta in options.betas]
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, fused=True)
    total = torch.zeros(())
    for step in range(1, options.steps + 1):
        target = data[torch.randint(len(data), (options.batch,))]
        noise, t = torch.randn_like(target), torch.rand(options.batch)
        x = torch.lerp(noise, target, t[:, None, None])
        loss = (model(x, t) - (target - noise)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for ema in averages:
            ema.update()
        total += loss.detach()
        if step % 50 == 0:
            print(f"step {step} loss {total.item() / 50:.4f}")
            total.zero_()
    for ema in averages:
        radius = ema.sample(16, options.points).norm(dim=-1)
        print(f"average {ema.beta}: radius of samples {radius.mean().item():.2f}")


if __name__ == "__main__":
    main()

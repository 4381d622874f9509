"""Humidity of wine cellars, forecast by a small transformer with batches of tensors."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    cellars: int = 48
    hours: int = 1500
    history: int = 96
    horizon: int = 12
    patch: int = 8
    width: int = 96
    heads: int = 4
    layers: int = 3
    batch_size: int = 64
    steps: int = 220
    lr: float = 1e-3
    seed: int = 6


def humidity(config: Config) -> torch.Tensor:
    generator = torch.Generator().manual_seed(config.seed)
    hours = torch.arange(config.hours)
    daily = torch.sin(2 * torch.pi * hours / 24 + 6 * torch.rand(config.cellars, 1, generator=generator))
    weekly = torch.cos(2 * torch.pi * hours / 168 + 6 * torch.rand(config.cellars, 1, generator=generator))
    drift = torch.randn(config.cellars, config.hours, generator=generator).cumsum(dim=1) * 0.02
    return daily + 0.5 * weekly + drift


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.dense = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.dense(self.after(x))


class CellarForecaster(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.patch = config.patch
        patches = config.history // config.patch
        self.entry = nn.Linear(config.patch, config.width)
        self.place = nn.Parameter(torch.zeros(patches, config.width))
        self.layers = nn.Sequential(*[Layer(config.width, config.heads) for _ in range(config.layers)])
        self.exit = nn.Linear(patches * config.width, config.horizon)

    def forward(self, past):
        mean = past.mean(dim=1, keepdim=True)
        tokens = self.entry((past - mean).unflatten(1, (-1, self.patch))) + self.place
        return self.exit(self.layers(tokens).flatten(1)) + mean


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    windows = humidity(config).unfold(1, config.history + config.horizon, 1).flatten(0, 1)
    model = CellarForecaster(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
    running = torch.zeros(())
    for step in range(1, config.steps + 1):
        window = windows[torch.randint(len(windows), (config.batch_size,))]
        past, future = window.split([config.history, config.horizon], dim=1)
        loss = F.mse_loss(model(past), future)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        running += loss.detach()
        if step % 55 == 0:
            print(f"step {step}: mse {running.item() / 55:.4f}")
            running.zero_()


if __name__ == "__main__":
    main()

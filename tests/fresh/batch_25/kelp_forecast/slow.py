"""Forecasts the biomass of kelp beds for the coming twelve weeks from buoy readings of the past year."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class ModelConfig:
    channels: int = 9
    history: int = 96
    horizon: int = 12
    dim: int = 128
    heads: int = 4
    layers: int = 3
    patch: int = 2


@dataclass
class RunConfig:
    model: ModelConfig = field(default_factory=ModelConfig)
    buoys: int = 40
    weeks: int = 900
    batch_size: int = 32
    steps: int = 120
    lr: float = 6e-4
    threads: int = 1
    seed: int = 41


def simulate_buoys(run: RunConfig) -> torch.Tensor:
    """Seasonal swells with slow trends and noise: (buoys, weeks, channels)."""
    generator = torch.Generator().manual_seed(run.seed)
    shape = (run.buoys, 1, run.model.channels)
    weeks = torch.arange(run.weeks, dtype=torch.float32).view(1, -1, 1)
    phase = 2 * math.pi * torch.rand(shape, generator=generator)
    trend = 1e-3 * torch.randn(shape, generator=generator)
    noise = torch.randn(run.buoys, run.weeks, run.model.channels, generator=generator)
    return torch.sin(2 * math.pi * weeks / 52 + phase) + trend * weeks + 0.3 * noise


class WindowSampler:
    """Cuts windows of history and horizon out of the readings of all buoys."""

    def __init__(self, readings: torch.Tensor, run: RunConfig) -> None:
        length = run.model.history + run.model.horizon
        self.windows = readings.unfold(1, length, 1)  # (buoys, starts, channels, length)
        self.history = run.model.history
        self.generator = torch.Generator().manual_seed(run.seed + 1)

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        buoy = torch.randint(self.windows.shape[0], (count,), generator=self.generator)
        start = torch.randint(self.windows.shape[1], (count,), generator=self.generator)
        chosen = self.windows[buoy, start].transpose(1, 2)
        return chosen[:, : self.history], chosen[:, self.history :, 0]


class Encoder(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.feed = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(self.before(x)).view(batch, length, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, dim))
        return x + self.feed(self.after(x))


class KelpForecaster(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.patch = config.patch
        tokens = config.history // config.patch
        self.embed = nn.Linear(config.patch * config.channels, config.dim)
        self.place = nn.Parameter(0.02 * torch.randn(tokens, config.dim))
        self.layers = nn.Sequential(*(Encoder(config.dim, config.heads) for _ in range(config.layers)))
        self.head = nn.Linear(config.dim, config.horizon)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        mean = history.mean(dim=1, keepdim=True)
        patches = (history - mean).reshape(history.shape[0], -1, self.patch * history.shape[2])
        tokens = self.layers(self.embed(patches) + self.place)
        return self.head(tokens.mean(dim=1)) + mean[:, :, 0]


def train(run: RunConfig) -> float:
    torch.manual_seed(run.seed)
    torch.set_num_threads(run.threads)
    sampler = WindowSampler(simulate_buoys(run), run)
    model = KelpForecaster(run.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, run.lr, total_steps=run.steps)
    running = 0.0
    for step in range(run.steps):
        history, future = sampler.draw(run.batch_size)
        loss = F.l1_loss(model(history), future)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running = loss.item() if step == 0 else 0.95 * running + 0.05 * loss.item()
        if step % 40 == 0:
            print(f"step {step:4d}  mean absolute error {running:.4f}")
    return running


if __name__ == "__main__":
    print(f"finished at {train(RunConfig()):.4f}")

"""N-BEATS on many series at once: windows are gathered by index, the bases are built once."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Config:
    series: int = 200
    length: int = 400
    backcast: int = 96
    horizon: int = 24
    width: int = 256
    blocks: int = 3
    batch_size: int = 256
    steps: int = 220
    lr: float = 1e-3


def trend_basis(size, degree=3):
    time = torch.linspace(0, 1, size)
    return torch.stack([time**power for power in range(degree + 1)])


def season_basis(size, harmonics=12):
    angles = 2 * torch.pi * torch.arange(1, harmonics + 1)[:, None] * torch.linspace(0, 1, size)
    return torch.cat([angles.cos(), angles.sin()])


class Block(nn.Module):
    def __init__(self, config, backcast_basis, forecast_basis):
        super().__init__()
        self.register_buffer("backcast_basis", backcast_basis)
        self.register_buffer("forecast_basis", forecast_basis)
        self.layers = nn.Sequential(
            nn.Linear(config.backcast, config.width),
            nn.ReLU(),
            nn.Linear(config.width, config.width),
            nn.ReLU(),
            nn.Linear(config.width, config.width),
            nn.ReLU(),
        )
        self.theta = nn.Linear(config.width, len(backcast_basis) + len(forecast_basis), bias=False)

    def forward(self, x):
        sizes = [len(self.backcast_basis), len(self.forecast_basis)]
        back, fore = self.theta(self.layers(x)).split(sizes, dim=-1)
        return back @ self.backcast_basis, fore @ self.forecast_basis


class NBeats(nn.Module):
    def __init__(self, config):
        super().__init__()
        stacks = []
        for basis in (trend_basis, season_basis):
            back, fore = basis(config.backcast), basis(config.horizon)
            stacks += [Block(config, back, fore) for _ in range(config.blocks)]
        self.blocks = nn.ModuleList(stacks)

    def forward(self, x):
        level = x[:, -1:]
        x, forecast = x - level, level
        for block in self.blocks:
            back, fore = block(x)
            x, forecast = x - back, forecast + fore
        return forecast


class Series:
    def __init__(self, config, seed):
        self.config, self.generator = config, torch.Generator().manual_seed(seed)
        time = torch.arange(config.length)
        phase = 6.28 * torch.rand(config.series, 1, generator=self.generator)
        period = torch.randint(6, 30, (config.series, 1), generator=self.generator)
        drift = 0.01 * torch.randn(config.series, 1, generator=self.generator)
        noise = 0.1 * torch.randn(config.series, config.length, generator=self.generator)
        self.values = torch.sin(6.28 * time / period + phase) + drift * time + noise
        self.span = torch.arange(config.backcast + config.horizon)

    def windows(self, start, rows):
        window = self.values[rows[:, None], start[:, None] + self.span]
        return window[:, : self.config.backcast], window[:, self.config.backcast :]

    def batch(self):
        last = self.config.length - len(self.span) - self.config.horizon
        start = torch.randint(0, last, (self.config.batch_size,), generator=self.generator)
        rows = torch.randint(0, self.config.series, (self.config.batch_size,), generator=self.generator)
        return self.windows(start, rows)

    def test(self):
        start = torch.full((self.config.series,), self.config.length - len(self.span))
        return self.windows(start, torch.arange(self.config.series))


def main(config):
    torch.manual_seed(560)
    series, model = Series(config, 561), NBeats(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [config.steps // 2, 3 * config.steps // 4], 0.5)
    for step in range(1, config.steps + 1):
        history, future = series.batch()
        loss = F.smooth_l1_loss(model(history), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 55 == 0:
            with torch.inference_mode():
                history, future = series.test()
                error = (model(history) - future).abs().mean()
            print(f"step {step}: loss {loss.item():.4f}, test error {error.item():.4f}")


if __name__ == "__main__":
    main(Config())

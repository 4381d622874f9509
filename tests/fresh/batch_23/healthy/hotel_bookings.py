"""Forecasts the rooms that are booked in hotels on the coming days from the weeks before, with an LSTM."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Config:
    hotels: int = 64
    days: int = 800
    past: int = 56
    ahead: int = 7
    width: int = 128
    layers: int = 2
    batch_size: int = 64
    steps: int = 160
    report_every: int = 40
    lr: float = 2e-3
    clip: float = 1.0
    seed: int = 67


class Bookings:
    """Series of all hotels in one tensor; windows are views of it, a batch is one gather."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.generator = torch.Generator().manual_seed(config.seed)
        day = torch.arange(config.days)
        week = torch.randn(config.hotels, 7, generator=self.generator)[:, day % 7]
        season = torch.sin(6.283 * (day / 365 + torch.rand(config.hotels, 1, generator=self.generator)))
        noise = 0.2 * torch.randn(config.hotels, config.days, generator=self.generator)
        rooms = week + season + noise
        calendar = torch.nn.functional.one_hot(day % 7, 7).float().expand(config.hotels, -1, -1)
        self.inputs = torch.cat([rooms.unsqueeze(2), calendar], dim=2)
        self.windows = self.inputs.unfold(1, config.past, 1).transpose(2, 3)
        self.targets = rooms[:, config.past :].unfold(1, config.ahead, 1)

    def sample(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        hotels = torch.randint(0, self.config.hotels, (count,), generator=self.generator)
        starts = torch.randint(0, self.targets.shape[1], (count,), generator=self.generator)
        return self.windows[hotels, starts], self.targets[hotels, starts]


class BookingModel(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, config.width, config.layers, batch_first=True, dropout=0.1)
        self.head = nn.Sequential(nn.LayerNorm(config.width), nn.Linear(config.width, 3 * config.ahead))

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(windows)
        return self.head(states[:, -1]).unflatten(1, (-1, 3))


class QuantileLoss(nn.Module):
    def __init__(self, quantiles: tuple[float, ...] = (0.1, 0.5, 0.9)) -> None:
        super().__init__()
        self.register_buffer("quantiles", torch.tensor(quantiles))

    def forward(self, forecast: torch.Tensor, rooms: torch.Tensor) -> torch.Tensor:
        error = rooms.unsqueeze(2) - forecast
        return torch.maximum(self.quantiles * error, (self.quantiles - 1) * error).mean()


class Fit:
    def __init__(self, config: Config) -> None:
        self.config = config
        self.data = Bookings(config)
        self.model = BookingModel(config)
        self.criterion = QuantileLoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr, fused=True)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, config.lr, total_steps=config.steps)

    def step(self) -> torch.Tensor:
        windows, rooms = self.data.sample(self.config.batch_size)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.criterion(self.model(windows), rooms)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        self.schedule.step()
        return loss.detach()

    def run(self) -> None:
        self.model.train()
        total = torch.zeros(())
        for step in range(1, self.config.steps + 1):
            total += self.step()
            if step % self.config.report_every == 0:
                print(f"step {step}: loss {(total / self.config.report_every).item():.4f}")
                total.zero_()


if __name__ == "__main__":
    given = Config()
    torch.manual_seed(given.seed)
    Fit(given).run()

"""Forecast the entries at metro turnstiles with a GRU over the past days and embeddings of the station."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    stations: int = 60
    hours: int = 24 * 60
    history: int = 72
    horizon: int = 6
    hidden: int = 96
    batch_size: int = 64
    steps: int = 200
    lr: float = 3e-3
    seed: int = 53


class Turnstiles:
    """Hourly entries of all stations; batches are cut from them by one gather."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.generator = torch.Generator().manual_seed(config.seed)
        hour = torch.arange(config.hours)
        peaks = torch.exp(-(((hour % 24) - 8.0) ** 2) / 4) + torch.exp(-(((hour % 24) - 18.0) ** 2) / 6)
        weekend = ((hour // 24) % 7 >= 5).float()
        size = 0.5 + torch.rand(config.stations, 1, generator=self.generator)
        noise = 0.1 * torch.randn(config.stations, config.hours, generator=self.generator)
        entries = size * peaks * (1 - 0.6 * weekend) + noise
        clock = torch.stack([torch.sin(2 * torch.pi * hour / 24), torch.cos(2 * torch.pi * hour / 24), weekend])
        self.entries = entries
        self.clock = clock.t().contiguous()
        self.window = torch.arange(config.history + config.horizon)
        self.split = int(config.hours * 0.85)

    def batch(self, first: int, last: int, size: int) -> tuple[torch.Tensor, ...]:
        length = len(self.window)
        station = torch.randint(0, self.config.stations, (size,), generator=self.generator)
        start = torch.randint(first, last - length, (size,), generator=self.generator)
        times = start[:, None] + self.window
        values = self.entries[station[:, None], times]
        past, future = values[:, : self.config.history], values[:, self.config.history :]
        inputs = torch.cat([past[..., None], self.clock[times[:, : self.config.history]]], dim=2)
        return inputs, station, future

    def training(self) -> tuple[torch.Tensor, ...]:
        return self.batch(0, self.split, self.config.batch_size)

    def validation(self) -> tuple[torch.Tensor, ...]:
        return self.batch(self.split, self.config.hours, 512)


class EntriesModel(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.station = nn.Embedding(config.stations, 16)
        self.gru = nn.GRU(4, config.hidden, num_layers=1, batch_first=True)
        self.out = nn.Sequential(
            nn.Linear(config.hidden + 16, config.hidden), nn.GELU(), nn.Linear(config.hidden, config.horizon)
        )

    def forward(self, inputs: torch.Tensor, station: torch.Tensor) -> torch.Tensor:
        _, last = self.gru(inputs)
        return self.out(torch.cat([last[-1], self.station(station)], dim=1))


def train(config: Config) -> EntriesModel:
    data = Turnstiles(config)
    model = EntriesModel(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    running = torch.zeros(())
    for step in range(1, config.steps + 1):
        inputs, station, future = data.training()
        loss = F.smooth_l1_loss(model(inputs, station), future)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        running += loss.detach()
        if step % 50 == 0:
            with torch.inference_mode():
                inputs, station, future = data.validation()
                error = F.l1_loss(model(inputs, station), future)
            print(f"step {step}: loss {running.item() / 50:.4f}, validation error {error.item():.4f}")
            running.zero_()
    return model


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    model = train(config)
    print(f"{sum(p.numel() for p in model.parameters())} weights")


if __name__ == "__main__":
    main()

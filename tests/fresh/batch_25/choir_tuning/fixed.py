"""Estimates how many cents a choir has drifted from its starting pitch, from short clips of sound."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from torch import nn

SAMPLE_RATE = 8_000


@dataclass(frozen=True)
class Config:
    clips: int = 1_024
    length: int = 2_048
    batch_size: int = 24
    steps: int = 150
    channels: int = 64
    lr: float = 1e-3
    seed: int = 29


class Watch:
    """Keeps histograms of all weights and gradients, to be drawn when training has ended."""

    def __init__(self, model: nn.Module, bins: int = 64, log_freq: int = 1, keep: int = 20) -> None:
        self.model = model
        self.bins = bins
        self.log_freq = log_freq
        self.history: deque[dict[str, torch.Tensor]] = deque(maxlen=keep)

    def histogram(self, values: torch.Tensor) -> torch.Tensor:
        low, high = values.min().item(), values.max().item()
        return torch.histc(values, bins=self.bins, min=low, max=high)

    @torch.no_grad()
    def log(self, step: int) -> None:
        if step % self.log_freq:
            return
        record = {}
        for name, parameter in self.model.named_parameters():
            record[f"weights/{name}"] = self.histogram(parameter)
            record[f"gradients/{name}"] = self.histogram(parameter.grad)
        self.history.append(record)


def sing(config: Config) -> tuple[torch.Tensor, torch.Tensor]:
    """Four voices with vibrato, all drifted by the same number of cents."""
    generator = torch.Generator().manual_seed(config.seed)
    time = torch.arange(config.length) / SAMPLE_RATE
    cents = torch.rand(config.clips, 1, generator=generator) * 100.0 - 50.0
    sound = torch.zeros(config.clips, config.length)
    for pitch in (110.0, 165.0, 220.0, 330.0):
        vibrato = 1.0 + 0.004 * torch.sin(2 * torch.pi * 5.0 * time)
        phase = torch.rand(config.clips, 1, generator=generator) * 2 * torch.pi
        sound += torch.sin(2 * torch.pi * pitch * 2 ** (cents / 1200.0) * vibrato * time + phase)
    sound += 0.2 * torch.randn(sound.shape, generator=generator)
    return (sound / sound.std(dim=1, keepdim=True)).unsqueeze(1), cents.squeeze(1) / 50.0


class Residual(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.spread = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(torch.relu(self.spread(torch.relu(self.norm(x)))))


class DriftNet(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(1, channels, 33, stride=8, padding=16)
        self.body = nn.Sequential(*(Residual(channels, 2**i) for i in range(5)))
        self.reduce = nn.Conv1d(channels, 16, 1)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16 * 256, 192), nn.ReLU(), nn.Linear(192, 1))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        return self.head(self.reduce(self.body(self.stem(sound)))).squeeze(1)


def batches(sound: torch.Tensor, drift: torch.Tensor, config: Config):
    generator = torch.Generator().manual_seed(config.seed + 1)
    for _ in range(config.steps):
        chosen = torch.randint(len(sound), (config.batch_size,), generator=generator)
        yield sound[chosen], drift[chosen]


def train(config: Config) -> None:
    torch.manual_seed(config.seed)
    sound, drift = sing(config)
    model = DriftNet(config.channels)
    watch = Watch(model, log_freq=50)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    for step, (clips, target) in enumerate(batches(sound, drift, config)):
        loss = nn.functional.mse_loss(model(clips), target)
        optimizer.zero_grad()
        loss.backward()
        watch.log(step)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}, {len(watch.history)} records kept")


if __name__ == "__main__":
    train(Config())

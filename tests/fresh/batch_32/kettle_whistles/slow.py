"""Estimates a kettle's pressure from half a second of its whistle: strided convolutions on the raw waveform."""

import copy
import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class LoaderConfig:
    train_batch: int = 16
    eval_batch: int = 1


@dataclass
class Config:
    clips: int = 520
    held_out: int = 480
    rate: int = 4000
    epochs: int = 5
    lr: float = 1e-3
    seed: int = 41
    patience: int = 6
    loaders: LoaderConfig = field(default_factory=LoaderConfig)


def record_whistles(count: int, rate: int, seed: int):
    """Pressure raises the pitch and the share of hiss."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(rate // 2) / rate
    pressure = torch.rand(count, generator=generator)
    pitch = 300 + 900 * pressure[:, None]
    wobble = torch.sin(2 * math.pi * 6 * time) * 15
    tone = torch.sin(2 * math.pi * (pitch + wobble) * time)
    hiss = torch.randn(count, len(time), generator=generator) * (0.1 + 0.5 * pressure[:, None])
    return (tone + hiss)[:, None], pressure


class ConvUnit(nn.Sequential):
    def __init__(self, inside: int, outside: int, kernel: int, stride: int):
        super().__init__(
            nn.Conv1d(inside, outside, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm1d(outside),
            nn.ReLU(),
        )


class WhistleNet(nn.Module):
    def __init__(self, channels: tuple[int, ...] = (24, 48, 64, 96)):
        super().__init__()
        units = [ConvUnit(1, channels[0], 31, 4)]
        for inside, outside in zip(channels, channels[1:]):
            units += [ConvUnit(inside, outside, 9, 2), ConvUnit(outside, outside, 5, 1)]
        self.units = nn.Sequential(*units)
        self.head = nn.Sequential(nn.Linear(2 * channels[-1], 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, waves):
        maps = self.units(waves)
        pooled = torch.cat([maps.mean(dim=2), maps.amax(dim=2)], dim=1)
        return self.head(pooled).squeeze(1)


class EarlyStopping:
    def __init__(self, patience: int):
        self.patience = patience
        self.best = float("inf")
        self.waited = 0
        self.state = None

    def update(self, error: float, model: nn.Module) -> bool:
        if error < self.best:
            self.best, self.waited = error, 0
            self.state = copy.deepcopy(model.state_dict())
        else:
            self.waited += 1
        return self.waited > self.patience


def make_loaders(config: Config):
    waves, pressure = record_whistles(config.clips + config.held_out, config.rate, config.seed)
    train = TensorDataset(waves[: config.clips], pressure[: config.clips])
    held = TensorDataset(waves[config.clips :], pressure[config.clips :])
    return (
        DataLoader(train, batch_size=config.loaders.train_batch, shuffle=True, drop_last=True),
        DataLoader(held, batch_size=config.loaders.eval_batch),
    )


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    total = torch.zeros(())
    for waves, pressure in loader:
        total += (model(waves) - pressure).abs().sum()
    model.train()
    return total.item() / len(loader.dataset)


def fit(config: Config) -> None:
    torch.manual_seed(config.seed)
    train_loader, held_loader = make_loaders(config)
    model = WhistleNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    stopping = EarlyStopping(config.patience)
    for epoch in range(config.epochs):
        losses = []
        for waves, pressure in train_loader:
            loss = F.smooth_l1_loss(model(waves), pressure, beta=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        error = evaluate(model, held_loader)
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, error {error:.4f}")
        if stopping.update(error, model):
            break
    model.load_state_dict(stopping.state)


if __name__ == "__main__":
    fit(Config())

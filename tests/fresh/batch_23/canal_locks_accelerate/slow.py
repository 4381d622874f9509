"""Predicts how long boats wait at each lock of a canal from the boats before them, trained with accelerate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    days: int = 2400
    boats: int = 64
    features: int = 14
    locks: int = 8
    width: int = 96
    batch_size: int = 48
    epochs: int = 3
    lr: float = 2e-3
    clip: float = 1.0
    seed: int = 53


def make_days(config: Config) -> TensorDataset:
    """Each day is a row of boats. A boat waits longer where those before it were large and slow."""
    generator = torch.Generator().manual_seed(config.seed)
    boats = torch.randn(config.days, config.boats, config.features, generator=generator)
    mixing = torch.randn(config.features, config.locks, generator=generator) / config.features**0.5
    waits = torch.zeros(config.days, config.boats, config.locks)
    queue = torch.zeros(config.days, config.locks)
    for boat in range(config.boats):
        queue = 0.8 * queue + (boats[:, boat] @ mixing).clamp(min=0)
        waits[:, boat] = queue
    return TensorDataset(boats, waits + 0.1 * torch.randn(waits.shape, generator=generator))


class QueueEncoder(nn.Module):
    """What is known of the queue after each boat."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.project = nn.Sequential(nn.Linear(features, width), nn.Tanh())
        self.gru = nn.GRU(width, width, batch_first=True)

    def forward(self, boats: torch.Tensor) -> torch.Tensor:
        inputs = self.project(boats)
        hidden = None
        outputs = []
        for t in range(inputs.shape[1]):
            output, hidden = self.gru(inputs[:, t : t + 1], hidden)
            outputs.append(output)
        return torch.cat(outputs, dim=1)


class WaitModel(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = QueueEncoder(config.features, config.width)
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Sequential(
            nn.Linear(config.width, config.width),
            nn.SiLU(),
            nn.Linear(config.width, config.locks),
        )

    def forward(self, boats: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(self.head(self.norm(self.encoder(boats))))


def train(config: Config) -> None:
    set_seed(config.seed)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(make_days(config), batch_size=config.batch_size, shuffle=True, drop_last=True)
    model = WaitModel(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(config.epochs):
        model.train()
        losses = []
        for boats, waits in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(boats), waits)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
            losses.append(loss.detach())
        schedule.step()
        accelerator.print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    train(Config())

"""Tell tagged falcons apart by the way they fly: embeddings of accelerometer windows from batch-hard triplets."""

from __future__ import annotations

import logging
import math
import warnings
from dataclasses import dataclass

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", message=".*does not have many workers.*")


@dataclass
class FlightConfig:
    birds: int = 60
    windows_per_bird: int = 40
    length: int = 192
    birds_per_batch: int = 16
    windows_per_batch: int = 4
    channels: tuple[int, ...] = (40, 64, 128)
    embedding: int = 48
    margin: float = 0.3
    lr: float = 1e-3
    batches_per_epoch: int = 50
    epochs: int = 4
    seed: int = 29


def make_flights(config: FlightConfig) -> TensorDataset:
    generator = torch.Generator().manual_seed(config.seed)
    birds = torch.arange(config.birds).repeat_interleave(config.windows_per_bird)
    beat = 3 + 5 * torch.rand(config.birds, 1, 1, generator=generator)
    tilt = torch.randn(config.birds, 3, 1, generator=generator)
    shape = torch.rand(config.birds, 3, 1, generator=generator)
    time = torch.linspace(0, 4, config.length)
    phase = 2 * math.pi * torch.rand(len(birds), 1, 1, generator=generator)
    angle = 2 * math.pi * beat[birds] * time + phase
    signal = tilt[birds] + torch.sin(angle) + shape[birds] * torch.sin(2 * angle)
    return TensorDataset(signal + 0.4 * torch.randn(signal.shape, generator=generator), birds)


class BalancedBatches(Sampler):
    """Batches of some birds with some windows of each."""

    def __init__(self, config: FlightConfig):
        self.config = config
        self.generator = torch.Generator().manual_seed(config.seed)

    def __len__(self) -> int:
        return self.config.batches_per_epoch

    def __iter__(self):
        c = self.config
        for _ in range(len(self)):
            birds = torch.randperm(c.birds, generator=self.generator)[: c.birds_per_batch]
            windows = torch.rand(c.birds_per_batch, c.windows_per_bird, generator=self.generator)
            chosen = windows.argsort(dim=1)[:, : c.windows_per_batch]
            yield (birds[:, None] * c.windows_per_bird + chosen).flatten().tolist()


class WindowEncoder(nn.Module):
    def __init__(self, config: FlightConfig):
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for outputs in config.channels:
            layers += [nn.Conv1d(inputs, outputs, 5, padding=2), nn.BatchNorm1d(outputs), nn.ReLU()]
            layers += [nn.Conv1d(outputs, outputs, 5, stride=2, padding=2), nn.BatchNorm1d(outputs), nn.ReLU()]
            inputs = outputs
        self.convolutions = nn.Sequential(*layers)
        self.project = nn.Linear(inputs, config.embedding)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        pooled = self.convolutions(windows).mean(dim=-1)
        return nn.functional.normalize(self.project(pooled), dim=1)


class BatchHardTriplet(nn.Module):
    """Each window against its farthest positive and its nearest negative in the batch."""

    def __init__(self, margin: float):
        super().__init__()
        self.margin = margin

    def forward(self, embeddings: torch.Tensor, birds: torch.Tensor) -> torch.Tensor:
        distances = (2 - 2 * embeddings @ embeddings.T).clamp(min=1e-6).sqrt()
        same = birds[:, None] == birds
        farthest = distances.masked_fill(~same, float("-inf")).max(dim=1).values
        nearest = distances.masked_fill(same, float("inf")).min(dim=1).values
        return torch.relu(farthest - nearest + self.margin).mean()


class FalconModule(pl.LightningModule):
    def __init__(self, config: FlightConfig):
        super().__init__()
        self.config = config
        self.encoder = WindowEncoder(config)
        self.criterion = BatchHardTriplet(config.margin)

    def training_step(self, batch, batch_idx):
        windows, birds = batch
        loss = self.criterion(self.encoder(windows), birds)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.config.lr)


def main() -> None:
    config = FlightConfig()
    pl.seed_everything(config.seed, verbose=False)
    loader = DataLoader(make_flights(config), batch_sampler=BalancedBatches(config))
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=config.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(FalconModule(config), loader)
    print(f"triplet loss {trainer.callback_metrics['loss']:.4f}")


if __name__ == "__main__":
    main()

"""Forecast the wind at a kite beach some hours ahead from its stations, with Lightning."""

from dataclasses import dataclass

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler


@dataclass
class Config:
    stations: int = 10
    hours: int = 6000
    history: int = 96
    horizon: int = 12
    channels: int = 64
    batch_size: int = 64
    epochs: int = 2
    lr: float = 2e-3
    seed: int = 41


def make_winds(config: Config) -> torch.Tensor:
    """Hourly wind of all stations: the breeze of the day, fronts that pass, and gusts."""
    generator = torch.Generator().manual_seed(config.seed)
    hour = torch.arange(config.hours, dtype=torch.float32)
    shift = torch.rand(config.stations, 1, generator=generator) * 4
    breeze = torch.sin(2 * torch.pi * (hour + shift) / 24).clamp(min=0)
    fronts = F.avg_pool1d(torch.randn(1, 1, config.hours + 35, generator=generator), 36, stride=1).view(1, -1) * 4
    return 2 * breeze + fronts + 0.2 * torch.randn(config.stations, config.hours, generator=generator)


class WindowSet(Dataset):
    """Windows of the history and the hours after it; a list of indices yields a whole batch."""

    def __init__(self, winds: torch.Tensor, config: Config) -> None:
        self.windows = winds.unfold(1, config.history + config.horizon, 1)
        self.history = config.history

    def __len__(self) -> int:
        return self.windows.shape[1]

    def __getitem__(self, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        windows = self.windows[:, rows].transpose(0, 1)
        return windows[..., : self.history], windows[..., self.history :]


class WindData(L.LightningDataModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def setup(self, stage: str) -> None:
        winds = make_winds(self.config)
        split = int(self.config.hours * 0.9)
        mean, scale = winds[:, :split].mean(1, keepdim=True), winds[:, :split].std(1, keepdim=True)
        winds = (winds - mean) / scale
        self.train_set = WindowSet(winds[:, :split], self.config)
        self.valid_set = WindowSet(winds[:, split:], self.config)

    def train_dataloader(self) -> DataLoader:
        batches = BatchSampler(RandomSampler(self.train_set), self.config.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=batches, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        batches = BatchSampler(SequentialSampler(self.valid_set), 256, drop_last=False)
        return DataLoader(self.valid_set, sampler=batches, batch_size=None)


class CausalBlock(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.past = 2 * dilation
        self.conv = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mix(F.gelu(self.conv(F.pad(x, (self.past, 0)))))


class WindForecaster(L.LightningModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.entry = nn.Conv1d(config.stations, config.channels, 1)
        self.blocks = nn.Sequential(*(CausalBlock(config.channels, 2**i) for i in range(5)))
        self.out = nn.Linear(config.channels, config.stations * config.horizon)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        last = self.blocks(self.entry(history))[..., -1]
        return self.out(last).view(-1, self.config.stations, self.config.horizon)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        history, future = batch
        return F.smooth_l1_loss(self(history), future)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        history, future = batch
        self.log("valid_mae", F.l1_loss(self(history), future), batch_size=len(future))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.config.lr, fused=True)


def main() -> None:
    config = Config()
    L.seed_everything(config.seed)
    trainer = L.Trainer(
        max_epochs=config.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(WindForecaster(config), WindData(config))
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

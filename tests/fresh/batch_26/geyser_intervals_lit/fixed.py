"""When does the geyser erupt next? A temporal convolution over gauges around it, with Lightning."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Settings:
    gauges: int = 6
    window: int = 96
    horizon: int = 12
    hidden: int = 48
    levels: int = 5
    batch_size: int = 32
    epochs: int = 2
    lr: float = 1e-3
    clip: float = 1.0
    detect_anomaly: bool = False
    seed: int = 21


def gauge_readings(settings: Settings, length: int = 3_600) -> Tensor:
    generator = torch.Generator().manual_seed(settings.seed)
    time = torch.arange(length, dtype=torch.float32).unsqueeze(1)
    period = 20 + 40 * torch.rand(settings.gauges, generator=generator)
    phase = 6.28 * torch.rand(settings.gauges, generator=generator)
    pressure = torch.sin(6.28 * time / period + phase).relu() ** 2
    return pressure + 0.05 * torch.randn(length, settings.gauges, generator=generator)


class Windows(Dataset):
    def __init__(self, readings: Tensor, window: int, horizon: int) -> None:
        self.readings, self.window, self.horizon = readings, window, horizon

    def __len__(self) -> int:
        return len(self.readings) - self.window - self.horizon + 1

    def __getitem__(self, start: int) -> tuple[Tensor, Tensor]:
        middle = start + self.window
        return self.readings[start:middle], self.readings[middle : middle + self.horizon, 0]


class GatedLevel(nn.Module):
    """A dilated convolution with a gate, and its residual and skip paths."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.filter = nn.Conv1d(width, width, 3, dilation=dilation)
        self.gate = nn.Conv1d(width, width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)
        self.skip = nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        padded = self.pad(x)
        gated = torch.tanh(self.filter(padded)) * torch.sigmoid(self.gate(padded))
        return x + self.mix(gated), self.skip(gated)


class Forecaster(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.stem = nn.Conv1d(settings.gauges, settings.hidden, 1)
        self.levels = nn.ModuleList(GatedLevel(settings.hidden, 2**level) for level in range(settings.levels))
        self.mean = nn.Linear(settings.hidden, settings.horizon)
        self.scale = nn.Linear(settings.hidden, settings.horizon)

    def forward(self, readings: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(readings.transpose(1, 2))
        skips = torch.zeros_like(x)
        for level in self.levels:
            x, skip = level(x)
            skips = skips + skip
        last = torch.relu(skips)[:, :, -1]
        return self.mean(last), nn.functional.softplus(self.scale(last)) + 1e-3


class GeyserModule(L.LightningModule):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.model = Forecaster(settings)
        self.loss = nn.GaussianNLLLoss()

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        readings, target = batch
        mean, scale = self.model(readings)
        loss = self.loss(mean, target, scale.square())
        self.log("nll", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.settings.lr)


def main() -> None:
    settings = Settings()
    L.seed_everything(settings.seed, verbose=False)
    windows = Windows(gauge_readings(settings), settings.window, settings.horizon)
    loader = DataLoader(windows, settings.batch_size, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=settings.epochs,
        gradient_clip_val=settings.clip,
        detect_anomaly=settings.detect_anomaly,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(GeyserModule(settings), loader)
    print(f"negative log-likelihood {trainer.callback_metrics['nll'].item():.3f}")


if __name__ == "__main__":
    main()

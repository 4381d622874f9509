"""Oxygen in fish ponds over the next half day: gated dilated convolutions over probes and weather, with Lightning."""

import math
import tempfile
from dataclasses import dataclass

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

PROBES = ("oxygen", "temperature", "light", "ph", "wind")


@dataclass
class Settings:
    ponds: int = 6
    hours: int = 1400
    past: int = 48
    future: int = 12
    stride: int = 4
    width: int = 24
    depth: int = 5
    batch_size: int = 32
    epochs: int = 4
    lr: float = 2e-3
    seed: int = 505
    detect_anomaly: bool = True


def measure_ponds(settings: Settings) -> Tensor:
    """Algae make oxygen by day and use it by night; wind brings some of it in."""
    generator = torch.Generator().manual_seed(settings.seed)
    hour = torch.arange(settings.hours)
    light = torch.clamp(torch.sin(2 * math.pi * (hour % 24 - 6) / 24), min=0)
    cloud = torch.rand(settings.hours // 24 + 1, generator=generator).repeat_interleave(24)[: settings.hours]
    light = light * (1 - 0.7 * cloud)
    ponds = []
    for _ in range(settings.ponds):
        algae = 0.4 + 0.8 * torch.rand((), generator=generator)
        wind = F.avg_pool1d(torch.randn(1, settings.hours, generator=generator).abs(), 9, 1, 4)[0]
        temperature = 18 + 5 * torch.sin(2 * math.pi * hour / (24 * 40)) + 2 * light
        oxygen, level = [], 8.0
        for step in range(settings.hours):
            saturation = 14.6 - 0.35 * temperature[step].item()
            level += 0.9 * algae.item() * light[step].item() - 0.28 * algae.item()
            level += 0.12 * wind[step].item() * (saturation - level)
            oxygen.append(level)
        oxygen = torch.tensor(oxygen) + 0.1 * torch.randn(settings.hours, generator=generator)
        ph = 7.4 + 0.08 * oxygen + 0.05 * torch.randn(settings.hours, generator=generator)
        ponds.append(torch.stack([oxygen, temperature, light, ph, wind]))
    series = torch.stack(ponds)
    return (series - series.mean(2, keepdim=True)) / series.std(2, keepdim=True)


class PondWindows(Dataset):
    def __init__(self, series: Tensor, past: int, future: int, stride: int):
        self.series, self.past, self.future, self.stride = series, past, future, stride
        self.per_pond = (series.shape[2] - past - future) // stride + 1

    def __len__(self) -> int:
        return len(self.series) * self.per_pond

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        pond, number = divmod(index, self.per_pond)
        start = number * self.stride
        middle = start + self.past
        return self.series[pond, :, start:middle], self.series[pond, 0, middle : middle + self.future]


class GatedBlock(nn.Module):
    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.reach = 2 * dilation
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate, value = self.conv(F.pad(x, (self.reach, 0))).chunk(2, dim=1)
        residual, skip = self.mix(torch.tanh(value) * torch.sigmoid(gate)).chunk(2, dim=1)
        return x + residual, skip


class PondModel(L.LightningModule):
    def __init__(self, settings: Settings):
        super().__init__()
        self.lr = settings.lr
        width = settings.width
        self.inner = nn.Conv1d(len(PROBES), width, 1)
        self.blocks = nn.ModuleList([GatedBlock(width, 2 ** (n % 4)) for n in range(settings.depth)])
        self.outer = nn.Sequential(nn.ReLU(), nn.Linear(width, 4 * width), nn.ReLU())
        self.mean = nn.Linear(4 * width, settings.future)
        self.scale = nn.Linear(4 * width, settings.future)

    def forward(self, past: Tensor) -> tuple[Tensor, Tensor]:
        x, skips = self.inner(past), 0.0
        for block in self.blocks:
            x, skip = block(x)
            skips = skips + skip
        state = self.outer(skips[:, :, -1])
        return self.mean(state), F.softplus(self.scale(state)) + 1e-3

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        past, future = batch
        mean, scale = self(past)
        loss = (scale.log() + 0.5 * ((future - mean) / scale).square()).mean()
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(past))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        past, future = batch
        mean, _ = self(past)
        self.log("val_mae", F.l1_loss(mean, future), batch_size=len(past))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-3)


def main() -> None:
    settings = Settings()
    L.seed_everything(settings.seed, verbose=False)
    series = measure_ponds(settings)
    border = int(0.85 * series.shape[2])
    train_set = PondWindows(series[:, :, :border], settings.past, settings.future, settings.stride)
    val_set = PondWindows(series[:, :, border:], settings.past, settings.future, settings.future)
    train_loader = DataLoader(train_set, batch_size=settings.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=128)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=settings.epochs,
            gradient_clip_val=1.0,
            detect_anomaly=settings.detect_anomaly,
            callbacks=[EarlyStopping("val_mae", patience=3)],
            default_root_dir=folder,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(PondModel(settings), train_loader, val_loader)
        print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

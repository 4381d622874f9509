"""Depth of a canal at all of its gauges in the coming day: an LSTM over the past two days, with Lightning."""

import math
import tempfile
from dataclasses import dataclass

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler


@dataclass
class Settings:
    hours: int = 9000
    gauges: int = 24
    past: int = 48
    future: int = 24
    hidden: int = 160
    batch_size: int = 64
    epochs: int = 3
    lr: float = 2e-3
    seed: int = 1819


def simulate(settings: Settings) -> Tensor:
    """Locks let water through by day; rain fills the canal and moves on from gauge to gauge."""
    generator = torch.Generator().manual_seed(settings.seed)
    hour = torch.arange(settings.hours).unsqueeze(1)
    gauge = torch.arange(settings.gauges)
    day = torch.sin(2 * math.pi * (hour - gauge) / 24)
    week = torch.sin(2 * math.pi * hour / 168 + gauge / 5)
    rain = torch.randn(1, 1, settings.hours + 400, generator=generator).clamp(min=1.5) - 1.5
    decay = torch.exp(-torch.arange(200.0) / 40).flip(0).view(1, 1, -1)
    flood = F.conv1d(rain, decay)[0, 0]
    delayed = torch.stack([flood[200 - 4 * g : 200 - 4 * g + settings.hours] for g in range(settings.gauges)], dim=1)
    noise = 0.1 * torch.randn(settings.hours, settings.gauges, generator=generator)
    return 0.5 * day + 0.3 * week + delayed + noise


class Windows(Dataset):
    """Takes the indices of a whole batch at once."""

    def __init__(self, series: Tensor, past: int, future: int):
        self.windows = series.unfold(0, past + future, 1)
        self.past = past

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        chosen = self.windows[indices].transpose(1, 2).contiguous()
        return chosen[:, : self.past], chosen[:, self.past :]


class CanalData(L.LightningDataModule):
    def __init__(self, settings: Settings):
        super().__init__()
        self.settings = settings

    def setup(self, stage: str | None = None) -> None:
        series = simulate(self.settings)
        border = int(0.85 * len(series))
        series = (series - series[:border].mean(0)) / series[:border].std(0)
        self.train_set = Windows(series[:border], self.settings.past, self.settings.future)
        self.val_set = Windows(series[border:], self.settings.past, self.settings.future)

    def train_dataloader(self) -> DataLoader:
        sampler = BatchSampler(RandomSampler(self.train_set), self.settings.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=sampler, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        sampler = BatchSampler(SequentialSampler(self.val_set), 256, drop_last=False)
        return DataLoader(self.val_set, sampler=sampler, batch_size=None)


class CanalModel(L.LightningModule):
    def __init__(self, settings: Settings):
        super().__init__()
        self.lr, self.epochs, self.future = settings.lr, settings.epochs, settings.future
        self.memory = nn.LSTM(settings.gauges, settings.hidden, batch_first=True)
        self.head = nn.Linear(settings.hidden, settings.future * settings.gauges)

    def forward(self, past: Tensor) -> Tensor:
        _, (last, _) = self.memory(past)
        change = self.head(last[-1]).unflatten(1, (self.future, -1))
        return past[:, -1:] + change

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        past, future = batch
        loss = F.smooth_l1_loss(self(past), future)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(past))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        past, future = batch
        self.log("val_mae", F.l1_loss(self(past), future), batch_size=len(past))

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr, fused=True)
        total = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main() -> None:
    settings = Settings()
    L.seed_everything(settings.seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val_mae", save_weights_only=True)
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=settings.epochs,
            callbacks=[best],
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(CanalModel(settings), datamodule=CanalData(settings))
        print(f"best mean absolute error {best.best_model_score.item():.4f}")


if __name__ == "__main__":
    main()

"""Levels of many reservoirs a week ahead: a temporal mixer in Lightning with errors for each reservoir."""

import tempfile

import lightning
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset

RESERVOIRS = [f"dam_{number:02d}" for number in range(48)]


class Levels(Dataset):
    """Windows of daily levels that follow the season, the rain and the reservoir upstream."""

    def __init__(self, days, past, ahead, seed):
        generator = torch.Generator().manual_seed(seed)
        count = len(RESERVOIRS)
        time = torch.arange(days, dtype=torch.float32)
        rain = torch.rand(days, count, generator=generator).pow(6)
        phase = torch.rand(count, generator=generator)
        season = torch.sin(2 * torch.pi * (time[:, None] / 365 + phase))
        level = torch.zeros(days, count)
        for day in range(1, days):
            level[day] = 0.93 * level[day - 1] + 0.4 * rain[day] + 0.05 * level[day - 1].roll(1)
        self.series = season + (level - level.mean(0)) / level.std(0)
        self.past, self.ahead = past, ahead

    def __len__(self):
        return len(self.series) - self.past - self.ahead

    def __getitem__(self, start):
        middle = start + self.past
        return self.series[start:middle], self.series[middle : middle + self.ahead]


class Mixer(nn.Module):
    def __init__(self, steps, channels, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.over_time = nn.Sequential(nn.Linear(steps, steps), nn.GELU(), nn.Dropout(0.1))
        self.over_channels = nn.Sequential(nn.Linear(channels, hidden), nn.GELU(), nn.Linear(hidden, channels))

    def forward(self, x):
        x = x + self.over_time(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norm2(x))


class ReservoirForecaster(lightning.LightningModule):
    def __init__(self, past, ahead, hidden=128, depth=2, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.mixers = nn.Sequential(*[Mixer(past, len(RESERVOIRS), hidden) for _ in range(depth)])
        self.head = nn.Linear(past, ahead)

    def forward(self, past):
        return self.head(self.mixers(past).transpose(1, 2)).transpose(1, 2)

    def training_step(self, batch, batch_index):
        past, future = batch
        predicted = self(past)
        loss = F.smooth_l1_loss(predicted, future)
        self.log("train/loss", loss, prog_bar=True)
        errors = (predicted.detach() - future).abs().mean((0, 1))
        for name, error in zip(RESERVOIRS, errors):
            self.log(f"train/mae/{name}", error, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_index):
        past, future = batch
        self.log("val/loss", F.l1_loss(self(past), future))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs),
        }


def main():
    lightning.seed_everything(41, verbose=False)
    past, ahead = 96, 7
    train_loader = DataLoader(Levels(6000, past, ahead, 41), batch_size=32, shuffle=True, drop_last=True)
    val_loader = DataLoader(Levels(800, past, ahead, 42), batch_size=256)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            devices=1,
            logger=CSVLogger(folder),
            log_every_n_steps=50,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(ReservoirForecaster(past, ahead), train_loader, val_loader)
        print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items() if "loss" in name})


if __name__ == "__main__":
    main()

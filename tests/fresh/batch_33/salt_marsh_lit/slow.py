"""Water level of a salt marsh a day ahead: dilated convolutions under Lightning."""

import argparse
import logging
import math
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


def tide_series(hours: int, gauges: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    time = np.arange(hours)[:, None]
    phase = rng.uniform(0, 2 * np.pi, size=(1, gauges))
    level = np.sin(2 * np.pi * time / 12.42 + phase) + 0.4 * np.sin(2 * np.pi * time / 24 + 2 * phase)
    spring = 1 + 0.3 * np.sin(2 * np.pi * time / 354)
    surge = np.cumsum(rng.normal(0, 0.02, size=(hours, gauges)), axis=0)
    return level * spring + surge - surge.mean(0) + rng.normal(0, 0.05, size=(hours, gauges))


class MarshWindows(Dataset):
    """Views of one long series, so that a window costs no copy until it is collated."""

    def __init__(self, series: np.ndarray, past: int, ahead: int):
        scaled = (series - series.mean(0)) / series.std(0)
        self.series = torch.from_numpy(scaled.astype(np.float32))
        self.past, self.ahead = past, ahead

    def __len__(self):
        return len(self.series) - self.past - self.ahead

    def __getitem__(self, start):
        middle = start + self.past
        return self.series[start:middle].t(), self.series[middle : middle + self.ahead].t()


class MarshData(L.LightningDataModule):
    def __init__(self, hours=2100, gauges=8, past=96, ahead=24, batch_size=32, seed=19):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        h = self.hparams
        series = tide_series(h.hours, h.gauges, h.seed)
        cut = int(0.85 * h.hours)
        self.train = MarshWindows(series[:cut], h.past, h.ahead)
        self.held_out = MarshWindows(series[cut:], h.past, h.ahead)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.held_out, batch_size=4 * self.hparams.batch_size)


class CausalBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.Conv1d(channels, 2 * channels, 3, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        value, gate = self.conv(self.pad(x)).chunk(2, dim=1)
        return x + self.mix(torch.tanh(value) * torch.sigmoid(gate))


class MarshForecaster(L.LightningModule):
    def __init__(self, gauges=8, channels=40, depth=5, ahead=24, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.enter = nn.Conv1d(gauges, channels, 1)
        self.blocks = nn.Sequential(*(CausalBlock(channels, 2**level) for level in range(depth)))
        self.leave = nn.Linear(channels, gauges * ahead)

    def forward(self, past):
        state = self.blocks(self.enter(past))[..., -1]
        return self.leave(state).view(len(past), self.hparams.gauges, self.hparams.ahead)

    def training_step(self, batch, batch_idx):
        past, ahead = batch
        loss = nn.functional.smooth_l1_loss(self(past), ahead)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        past, ahead = batch
        self.log("val_rmse", (self(past) - ahead).square().mean().sqrt())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 * (1 + math.cos(math.pi * epoch / 8)))
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def build_trainer(epochs: int, precision: str = "64-true") -> L.Trainer:
    return L.Trainer(
        max_epochs=epochs,
        precision=precision,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--channels", type=int, default=40)
    parser.add_argument("--seed", type=int, default=19)
    args = parser.parse_args()
    L.seed_everything(args.seed, verbose=False)
    trainer = build_trainer(args.epochs)
    trainer.fit(MarshForecaster(channels=args.channels), datamodule=MarshData(seed=args.seed))
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

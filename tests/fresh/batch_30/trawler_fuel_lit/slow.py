"""Forecast the fuel that trawlers burn in the next hours from their engine logs, with dilated convolutions."""

from argparse import ArgumentParser

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHANNELS = ("speed", "rpm", "net_load", "wave_height", "wind", "fuel")


def simulate_fleet(vessels, minutes, seed):
    """Logs of an engine, a value a minute: drag and waves decide what the fuel pump delivers."""
    rng = np.random.default_rng(seed)
    waves = np.abs(rng.normal(size=(vessels, minutes)).cumsum(axis=1)) / np.sqrt(minutes)
    wind = waves + 0.3 * rng.normal(size=(vessels, minutes))
    towing = np.sin(np.arange(minutes) / 90 + rng.uniform(0, 6, size=(vessels, 1))) > 0
    load = towing * rng.uniform(0.5, 1, size=(vessels, 1))
    speed = 10 - 6 * load - waves + 0.2 * rng.normal(size=(vessels, minutes))
    rpm = 60 * speed + 400 * load + 20 * rng.normal(size=(vessels, minutes))
    fuel = 0.02 * rpm + 8 * load + 2 * waves + 0.3 * rng.normal(size=(vessels, minutes))
    return np.stack([speed, rpm, load, waves, wind, fuel], axis=1).astype(np.float32)


class EngineWindows(Dataset):
    """The past of a vessel in five-minute means, and the fuel of the hours that follow."""

    def __init__(self, logs, past=480, future=120, every=96, bin_minutes=5):
        self.logs, self.past, self.future, self.bin = logs, past, future, bin_minutes
        starts = range(0, logs.shape[2] - past - future, every)
        self.places = [(vessel, start) for vessel in range(len(logs)) for start in starts]
        self.mean = logs.mean(axis=(0, 2))[:, None]
        self.std = logs.std(axis=(0, 2))[:, None]

    def __len__(self):
        return len(self.places)

    def binned(self, values):
        return values.reshape(len(values), -1, self.bin).mean(axis=2)

    def __getitem__(self, index):
        vessel, start = self.places[index]
        window = (self.logs[vessel, :, start : start + self.past + self.future] - self.mean) / self.std
        past, future = window[:, : self.past], window[-1:, self.past :]
        return torch.from_numpy(self.binned(past)), torch.from_numpy(self.binned(future)[0])


class FleetData(L.LightningDataModule):
    def __init__(self, vessels=24, minutes=2880, batch_size=32, workers=2):
        super().__init__()
        self.vessels, self.minutes = vessels, minutes
        self.options = {"batch_size": batch_size, "num_workers": workers}

    def setup(self, stage=None):
        logs = simulate_fleet(self.vessels, self.minutes, seed=31)
        self.train = EngineWindows(logs[:-4])
        self.valid = EngineWindows(logs[-4:])

    def train_dataloader(self):
        return DataLoader(self.train, shuffle=True, drop_last=True, **self.options)

    def val_dataloader(self):
        return DataLoader(self.valid, **self.options)


class DilatedBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.padding = 2 * dilation
        self.conv = nn.Conv1d(width, 2 * width, kernel_size=3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, kernel_size=1)

    def forward(self, inputs):
        value, gate = self.conv(F.pad(inputs, (self.padding, 0))).chunk(2, dim=1)
        return inputs + self.mix(value.tanh() * gate.sigmoid())


class FuelForecaster(L.LightningModule):
    def __init__(self, width=32, depth=5, horizon=24, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Conv1d(len(CHANNELS), width, kernel_size=1)
        self.blocks = nn.Sequential(*(DilatedBlock(width, 2**level) for level in range(depth)))
        self.head = nn.Linear(width, horizon)

    def forward(self, past):
        return self.head(self.blocks(self.embed(past))[:, :, -1])

    def training_step(self, batch, batch_idx):
        past, future = batch
        loss = F.smooth_l1_loss(self(past), future)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        past, future = batch
        self.log("valid_mae", F.l1_loss(self(past), future))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main():
    parser = ArgumentParser()
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    L.seed_everything(31, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=args.epochs,
        check_val_every_n_epoch=4,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(FuelForecaster(args.width), FleetData(workers=args.workers))
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

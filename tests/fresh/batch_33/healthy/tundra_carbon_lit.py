"""Carbon that a tundra breathes out, from the weather of the days before: an LSTM under Lightning."""

import argparse
import logging
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")


def tower_record(days: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    season = 2 * np.pi * np.arange(days) / 365.25
    air = -8 - 18 * np.cos(season) + np.convolve(rng.normal(0, 5, days), np.ones(5) / 5, "same")
    rain = rng.gamma(0.4, 3.0, days)
    wind = rng.gamma(4.0, 1.2, days)
    light = np.clip(200 - 180 * np.cos(season) + rng.normal(0, 30, days), 0, None)
    soil = np.convolve(air, np.exp(-np.arange(60) / 20) / 20, "full")[:days]
    carbon = np.exp(0.08 * soil) + 0.02 * rain - 0.002 * light * (soil > 0) + rng.normal(0, 0.05, days)
    weather = np.stack([air, rain, wind, light, np.sin(season), np.cos(season)], axis=1)
    weather = (weather - weather.mean(0)) / weather.std(0)
    carbon = (carbon - carbon.mean()) / carbon.std()
    return torch.from_numpy(weather).float(), torch.from_numpy(carbon).float()


class Windows(Dataset):
    """Windows over the record. An index is a whole batch of them, so that a batch is one look-up."""

    def __init__(self, weather: torch.Tensor, carbon: torch.Tensor, past: int):
        self.inputs = weather.unfold(0, past, 1).transpose(1, 2)
        self.targets = carbon[past - 1 :]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inputs[index], self.targets[index]


class TundraData(L.LightningDataModule):
    def __init__(self, days: int, past: int, batch_size: int, seed: int):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None) -> None:
        weather, carbon = tower_record(self.hparams.days, self.hparams.seed)
        cut = int(0.85 * self.hparams.days)
        self.train = Windows(weather[:cut], carbon[:cut], self.hparams.past)
        self.held_out = Windows(weather[cut:], carbon[cut:], self.hparams.past)

    def train_dataloader(self) -> DataLoader:
        batches = BatchSampler(RandomSampler(self.train), self.hparams.batch_size, drop_last=True)
        return DataLoader(self.train, sampler=batches, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        batches = BatchSampler(SequentialSampler(self.held_out), 4 * self.hparams.batch_size, drop_last=False)
        return DataLoader(self.held_out, sampler=batches, batch_size=None)


class CarbonModel(L.LightningModule):
    def __init__(self, features: int = 6, hidden: int = 96, lr: float = 2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.lstm = nn.LSTM(features, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def forward(self, weather):
        states, _ = self.lstm(weather)
        return self.head(states[:, -1]).squeeze(-1)

    def training_step(self, batch, batch_idx):
        weather, carbon = batch
        loss = nn.functional.huber_loss(self(weather), carbon)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        weather, carbon = batch
        self.log("val_mae", (self(weather) - carbon).abs().mean(), batch_size=len(carbon))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=5000)
    parser.add_argument("--past", type=int, default=45)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=73)
    args = parser.parse_args()
    L.seed_everything(args.seed, verbose=False)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(CarbonModel(), datamodule=TundraData(args.days, args.past, args.batch_size, args.seed))
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

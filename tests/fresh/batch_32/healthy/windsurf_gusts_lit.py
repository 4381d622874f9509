"""Forecasts gusts on a bay for windsurfers: a GRU over the stations, in Lightning."""

import argparse
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def blow(hours: int, stations: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    day = torch.sin(torch.arange(hours).float()[:, None] / 24 * 6.28 + torch.rand(stations, generator=generator))
    fronts = torch.randn(hours, 1, generator=generator)
    kernel = torch.ones(1, 1, 18) / 18
    fronts = F.conv1d(fronts.T[None], kernel, padding="same")[0].T * 4
    return day + fronts + 0.3 * torch.randn(hours, stations, generator=generator)


class GustBatches(torch.utils.data.IterableDataset):
    """Whole batches of windows, cut from a strided view of the series."""

    def __init__(self, series: torch.Tensor, history: int, horizon: int, batch_size: int):
        self.windows = series.unfold(0, history + horizon, 1).transpose(1, 2)
        self.history, self.batch_size = history, batch_size

    def __len__(self):
        return len(self.windows) // self.batch_size

    def __iter__(self):
        order = torch.randperm(len(self.windows))[: len(self) * self.batch_size]
        for rows in order.view(-1, self.batch_size):
            batch = self.windows[rows]
            yield batch[:, : self.history], batch[:, self.history :, 0]


class GustData(L.LightningDataModule):
    def __init__(self, args):
        super().__init__()
        self.args = args

    def setup(self, stage=None):
        series = blow(self.args.hours, self.args.stations, seed=53)
        series = (series - series.mean(0)) / series.std(0)
        edge = int(0.85 * len(series))
        shape = (self.args.history, self.args.horizon, self.args.batch_size)
        self.train_set, self.val_set = GustBatches(series[:edge], *shape), GustBatches(series[edge:], *shape)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(self.train_set, batch_size=None)

    def val_dataloader(self):
        return torch.utils.data.DataLoader(self.val_set, batch_size=None)


class GustModel(L.LightningModule):
    def __init__(self, stations: int, horizon: int, width: int = 96, lr: float = 2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.gru = nn.GRU(stations, width, batch_first=True)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 3 * horizon))
        self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))

    def forward(self, history):
        _, last = self.gru(history)
        return self.head(last[0]).view(-1, self.hparams.horizon, 3)

    def pinball(self, batch):
        history, future = batch
        error = future[..., None] - self(history)
        return torch.maximum(self.levels * error, (self.levels - 1) * error).mean()

    def training_step(self, batch, batch_idx):
        loss = self.pinball(batch)
        self.log("train", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val", self.pinball(batch), on_step=False, on_epoch=True)

    def on_train_epoch_end(self):
        figures = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch}: pinball {figures['train']:.4f}, validation {figures['val']:.4f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=6000)
    parser.add_argument("--stations", type=int, default=12)
    parser.add_argument("--history", type=int, default=72)
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    L.seed_everything(53, verbose=False)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(GustModel(args.stations, args.horizon), GustData(args))


if __name__ == "__main__":
    main()

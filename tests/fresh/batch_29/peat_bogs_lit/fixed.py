"""Depth of the water table in peat bogs from a station's table, with Lightning."""

import argparse
import logging
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


class GatedBlock(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.dropout(self.down(value * torch.sigmoid(gate)))


class BogModel(L.LightningModule):
    def __init__(self, features=24, stations=40, width=192, depth=6, dropout=0.05, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stations = nn.Embedding(stations, 16)
        self.entry = nn.Linear(features + 16, width)
        self.blocks = nn.Sequential(*[GatedBlock(width, dropout) for _ in range(depth)])
        self.depth = nn.Linear(width, 1)
        self.spread = nn.Linear(width, 1)

    def forward(self, weather, station):
        hidden = self.blocks(self.entry(torch.cat([weather, self.stations(station)], dim=1)))
        return self.depth(hidden).squeeze(1), F.softplus(self.spread(hidden)).squeeze(1) + 1e-3

    def training_step(self, batch, batch_idx):
        weather, station, target = batch
        mean, spread = self(weather, station)
        loss = F.gaussian_nll_loss(mean, target, spread.square())
        self.log("train_loss", loss)
        return loss

    def on_before_optimizer_step(self, optimizer):
        if self.trainer.global_step % self.trainer.log_every_n_steps == 0:
            self.log_dict(grad_norm(self, norm_type=2))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class BogData(L.LightningDataModule):
    def __init__(self, rows=40960, features=24, stations=40, batch_size=1024, seed=11):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        p = self.hparams
        generator = torch.Generator().manual_seed(p.seed)
        weather = torch.randn(p.rows, p.features, generator=generator)
        station = torch.randint(p.stations, (p.rows,), generator=generator)
        level = torch.randn(p.stations, generator=generator)
        weights = torch.randn(p.features, generator=generator) / p.features**0.5
        target = torch.tanh(weather @ weights) + 0.5 * level[station]
        target += 0.1 * torch.randn(p.rows, generator=generator)
        self.table = TensorDataset(weather, station, target)

    def train_dataloader(self):
        order = torch.utils.data.RandomSampler(self.table)
        batches = torch.utils.data.BatchSampler(order, self.hparams.batch_size, drop_last=True)
        return DataLoader(self.table, sampler=batches, batch_size=None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    L.seed_everything(args.seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=args.epochs,
            accelerator="cpu",
            devices=1,
            logger=CSVLogger(folder),
            log_every_n_steps=args.log_every,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(BogModel(), datamodule=BogData(seed=args.seed))
        print(f"loss {trainer.callback_metrics['train_loss']:.4f}")


if __name__ == "__main__":
    main()

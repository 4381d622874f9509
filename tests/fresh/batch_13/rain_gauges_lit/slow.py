"""Forecast the next hours of rain gauges with a GRU encoder and Lightning."""

import argparse
import tempfile

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class GaugeData(L.LightningDataModule):
    def __init__(self, history=48, horizon=6, batch_size=64):
        super().__init__()
        self.history, self.horizon, self.batch_size = history, horizon, batch_size

    def setup(self, stage=None):
        generator = torch.Generator().manual_seed(0)
        hours = torch.arange(9000.0)
        storms = torch.randn(8, 9000, generator=generator).cumsum(1).sin().clamp(min=0)
        series = storms + 0.3 * torch.sin(hours / 24 * 6.283) + 0.05 * torch.randn(8, 9000, generator=generator)
        windows = series.T.unfold(0, self.history + self.horizon, 1).transpose(1, 2)
        x, y = windows[:, : self.history].contiguous(), windows[:, self.history :].contiguous()
        self.train_set = TensorDataset(x[:8000], y[:8000])
        self.val_set = TensorDataset(x[8200:], y[8200:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=256)


class AttentiveForecaster(L.LightningModule):
    def __init__(self, gauges=8, width=32, horizon=6, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.inp = nn.Linear(gauges, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.gate = nn.GRUCell(width, width)
        self.out = nn.Linear(width, gauges)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = block(h)
        state = h.mean(1)
        steps = []
        for _ in range(self.hparams.horizon):
            state = self.gate(h[:, -1], state)
            steps.append(self.out(state))
        return torch.stack(steps, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.huber_loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", F.l1_loss(self(x), y), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    L.seed_everything(1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=args.epochs,
            gradient_clip_val=1.0,
            detect_anomaly=True,
            logger=CSVLogger(folder),
            default_root_dir=folder,
            enable_progress_bar=False,
            enable_checkpointing=False,
        )
        trainer.fit(AttentiveForecaster(lr=args.lr), datamodule=GaugeData())


if __name__ == "__main__":
    main()

"""Predicts who gives again to a chapel's roof fund: a wide table of donors, a residual MLP in Lightning."""

import argparse
import logging
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def make_donors(rows: int, columns: int, seed: int):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, columns)).astype(np.float32)
    weights = rng.normal(size=(columns,)).astype(np.float32) / np.sqrt(columns)
    score = table @ weights + 0.6 * table[:, 0] * table[:, 1] + 0.3 * rng.normal(size=rows)
    return torch.from_numpy(table), torch.from_numpy((score > 0.4).astype(np.int64))


class DonorData(L.LightningDataModule):
    def __init__(self, rows: int, columns: int, batch_size: int):
        super().__init__()
        self.rows, self.columns, self.batch_size = rows, columns, batch_size

    def setup(self, stage=None):
        features, gives = make_donors(self.rows, self.columns, seed=23)
        self.train_set = TensorDataset(features, gives)

    def train_dataloader(self):
        sampler = torch.utils.data.BatchSampler(
            torch.utils.data.RandomSampler(self.train_set), self.batch_size, drop_last=True
        )
        return DataLoader(self.train_set, sampler=sampler, batch_size=None)


class Residual(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.outer(F.silu(self.inner(self.norm(x)))))


class DonorModel(L.LightningModule):
    def __init__(self, columns: int, width: int = 192, depth: int = 3, dropout: float = 0.1, lr: float = 2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.entry = nn.Linear(columns, width)
        self.blocks = nn.Sequential(*(Residual(width, dropout) for _ in range(depth)))
        self.exit = nn.Linear(width, 1)
        self.accuracy = BinaryAccuracy()
        self.auroc = BinaryAUROC()

    def forward(self, x):
        return self.exit(self.blocks(self.entry(x))).squeeze(1)

    def training_step(self, batch, batch_idx):
        features, gives = batch
        logits = self(features)
        loss = F.binary_cross_entropy_with_logits(logits, gives.float())
        chance = torch.sigmoid(logits.detach())
        self.accuracy.update(chance, gives)
        self.auroc.update(chance, gives)
        self.log("train_loss", loss)
        self.log("train_auroc", self.auroc.compute())
        return loss

    def on_train_epoch_end(self):
        print(
            f"epoch {self.current_epoch}: accuracy {self.accuracy.compute():.3f}, "
            f"area under the curve {self.auroc.compute():.3f}"
        )
        self.accuracy.reset()
        self.auroc.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=51200)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    L.seed_everything(23, verbose=False)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DonorModel(args.columns), DonorData(args.rows, args.columns, args.batch_size))

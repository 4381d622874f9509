"""Forecast the level of tide pools a day ahead: a patch transformer in Lightning."""

import argparse
from typing import Literal

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def simulate(pools: int, hours: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    hour = np.arange(hours)
    columns = {}
    for pool in range(pools):
        phase, spring = rng.uniform(0, 2 * np.pi, 2)
        tide = np.sin(2 * np.pi * hour / 12.42 + phase) * (1 + 0.4 * np.sin(2 * np.pi * hour / 354 + spring))
        leak = rng.normal(0, 0.05, hours).cumsum() * 0.05
        columns[f"pool_{pool:02d}"] = tide + leak + rng.normal(0, 0.05, hours)
    return pd.DataFrame(columns, index=pd.date_range("2023-01-01", periods=hours, freq="h"))


class WindowDataset(Dataset):
    """All windows of all pools, as views of one tensor."""

    def __init__(self, frame: pd.DataFrame, context: int, horizon: int) -> None:
        values = (frame - frame.mean()) / frame.std()
        series = torch.tensor(values.to_numpy().T, dtype=torch.get_default_dtype())
        self.windows = series.unfold(1, context + horizon, 1)
        self.context = context

    def __len__(self) -> int:
        return self.windows.shape[0] * self.windows.shape[1]

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        picked = torch.tensor(indices)
        pool, start = picked // self.windows.shape[1], picked % self.windows.shape[1]
        return self.windows[pool, start]


class PatchForecaster(L.LightningModule):
    def __init__(self, context: int, horizon: int, patch: int = 8, width: int = 96, layers: int = 3, lr: float = 7e-4):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Linear(patch, width)
        self.position = nn.Parameter(torch.randn(context // patch, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(context // patch * width, horizon)

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        level = past[:, -1:]
        patches = (past - level).unflatten(1, (-1, self.hparams.patch))
        encoded = self.encoder(self.embed(patches) + self.position)
        return self.head(encoded.flatten(1)) + level

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        past, future = batch.split([self.hparams.context, self.hparams.horizon], dim=1)
        return F.mse_loss(self(past), future)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class LossPrinter(L.Callback):
    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if trainer.global_step % self.every == 0:
            print(f"step {trainer.global_step}: mse {outputs['loss'].item():.4f}")


def train(
    frame: pd.DataFrame,
    context: int = 192,
    horizon: int = 24,
    batch_size: int = 48,
    steps: int = 160,
    precision: Literal["64-true", "32-true"] = "32-true",
) -> None:
    windows = WindowDataset(frame, context, horizon)
    loader = DataLoader(windows, batch_size=batch_size, shuffle=True, drop_last=True, collate_fn=lambda batch: batch)
    trainer = L.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        precision=precision,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[LossPrinter(every=40)],
    )
    trainer.fit(PatchForecaster(context, horizon), loader)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pools", type=int, default=24)
    parser.add_argument("--hours", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=17)
    args = parser.parse_args()
    L.seed_everything(args.seed)
    train(simulate(args.pools, args.hours, args.seed))


if __name__ == "__main__":
    main()

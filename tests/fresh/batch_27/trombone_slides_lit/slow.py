"""Estimate the slide position of a trombone from a short recording, with Lightning."""

import json
import math
import tempfile
from pathlib import Path

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

RATE = 8_000
SAMPLES = 4_096


def synthesise(count, seed=11):
    generator = torch.Generator().manual_seed(seed)
    position = torch.rand(count, generator=generator) * 6
    base = 233.0 * torch.pow(2.0, -position / 12)
    time = torch.arange(SAMPLES) / RATE
    tone = torch.zeros(count, SAMPLES)
    for harmonic in range(1, 7):
        strength = torch.rand(count, 1, generator=generator) / harmonic
        tone += strength * torch.sin(2 * math.pi * harmonic * base[:, None] * time)
    tone += 0.05 * torch.randn(count, SAMPLES, generator=generator)
    return tone, position


class LogSpectrogram(nn.Module):
    def __init__(self, n_fft=256, hop=64):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, wave):
        spectrum = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log1p(spectrum.abs())


class SlideRegressor(L.LightningModule):
    def __init__(self, width=160, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.front = LogSpectrogram()
        self.body = nn.Sequential(
            nn.Conv1d(129, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, 2 * width, 5, padding=2),
            nn.GELU(),
        )
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, wave):
        return self.head(self.body(self.front(wave)).mean(dim=2)).squeeze(1)

    def training_step(self, batch, batch_idx):
        wave, position = batch
        loss = nn.functional.smooth_l1_loss(self(wave), position)
        if batch_idx % 20 == 0:
            self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4, fused=True)


class GradientWatcher(L.Callback):
    """Keeps the distribution of every gradient, for the plots of the report."""

    def __init__(self, path, bins=64, log_freq=1):
        self.path = Path(path)
        self.bins = bins
        self.log_freq = log_freq

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if trainer.global_step % self.log_freq:
            return
        record = {"step": trainer.global_step}
        for name, parameter in pl_module.named_parameters():
            for kind, values in (("grad", parameter.grad), ("weight", parameter.detach())):
                counts, edges = np.histogram(values.cpu().numpy(), bins=self.bins)
                record[f"{kind}/{name}"] = {"counts": counts.tolist(), "low": float(edges[0]), "high": float(edges[-1])}
        with self.path.open("a") as stream:
            stream.write(json.dumps(record) + "\n")


class RecordingsModule(L.LightningDataModule):
    def __init__(self, count=1_536, batch_size=48):
        super().__init__()
        self.count = count
        self.batch_size = batch_size

    def setup(self, stage):
        self.recordings = TensorDataset(*synthesise(self.count))

    def train_dataloader(self):
        return DataLoader(self.recordings, batch_size=self.batch_size, shuffle=True, drop_last=True)


def main():
    L.seed_everything(3)
    with tempfile.TemporaryDirectory() as folder:
        watcher = GradientWatcher(Path(folder) / "gradients.jsonl")
        trainer = L.Trainer(
            max_epochs=6,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[watcher],
        )
        trainer.fit(SlideRegressor(), datamodule=RecordingsModule())
        print("loss", trainer.callback_metrics["train_loss"].item())


if __name__ == "__main__":
    main()

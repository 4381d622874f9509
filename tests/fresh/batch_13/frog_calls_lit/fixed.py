"""Tell frogs apart by their calls: log spectrograms, a small CNN, Lightning."""

import tempfile

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

RATE = 8000


class FrogCalls(Dataset):
    def __init__(self, size, seed, species=6):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, species, size)
        time = np.arange(RATE) / RATE
        pitch = 400 + 350 * self.labels + rng.normal(0, 20, size)
        pulse = np.sin(2 * np.pi * (3 + self.labels)[:, None] * time) > 0
        noise = rng.normal(0, 0.4, (size, RATE))
        self.waves = (np.sin(2 * np.pi * pitch[:, None] * time) * pulse + noise).astype(np.float32)
        self.window = torch.hann_window(256)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        wave = torch.from_numpy(np.roll(self.waves[index], np.random.randint(RATE)))
        spectrum = torch.stft(wave, 256, 128, window=self.window, return_complex=True).abs()
        return spectrum.log1p()[None], int(self.labels[index])


class FrogData(L.LightningDataModule):
    def __init__(self, batch_size=24, num_workers=2):
        super().__init__()
        self.loader_args = dict(batch_size=batch_size, num_workers=num_workers, persistent_workers=True)

    def setup(self, stage=None):
        self.train_set = FrogCalls(240, seed=1)
        self.val_set = FrogCalls(48, seed=2)

    def train_dataloader(self):
        return DataLoader(self.train_set, shuffle=True, drop_last=True, **self.loader_args)

    def val_dataloader(self):
        return DataLoader(self.val_set, **self.loader_args)


class FrogNet(L.LightningModule):
    def __init__(self, species=6, width=24):
        super().__init__()
        layers, channels = [], 1
        for out in (width, width, 2 * width, 2 * width):
            layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        self.features = nn.Sequential(*layers)
        self.classify = nn.Linear(channels, species)

    def forward(self, x):
        return self.classify(self.features(x).mean((2, 3)))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=2e-3)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)]


def main():
    L.seed_everything(3, workers=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=20,
            log_every_n_steps=10,
            callbacks=[LearningRateMonitor("epoch")],
            logger=CSVLogger(folder),
            enable_progress_bar=False,
            enable_checkpointing=False,
        )
        trainer.fit(FrogNet(), datamodule=FrogData())


if __name__ == "__main__":
    main()

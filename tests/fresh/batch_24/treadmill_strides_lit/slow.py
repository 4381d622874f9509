"""Classify the gait of runners from windows of six inertial channels on a treadmill."""

from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    windows: int = 7680
    length: int = 256
    channels: int = 6
    gaits: int = 9
    batch_size: int = 64
    epochs: int = 2
    lr: float = 2e-3
    seed: int = 11


class StrideWindows(Dataset):
    """Windows cut from longer recordings, with jitter and scaling of the amplitude."""

    def __init__(self, config: Config, windows: int, seed: int, augment: bool) -> None:
        rng = np.random.default_rng(seed)
        time = np.arange(config.length, dtype=np.float32) / 64
        self.labels = rng.integers(0, config.gaits, windows)
        pace = 1.0 + 0.25 * self.labels[:, None, None] + rng.normal(0, 0.05, (windows, 1, 1))
        phase = rng.uniform(0, 2 * np.pi, (windows, config.channels, 1))
        waves = np.sin(2 * np.pi * pace * time + phase) + rng.normal(0, 0.4, (windows, config.channels, config.length))
        self.waves = waves.astype(np.float32)
        self.augment = augment
        self.rng = np.random.default_rng(seed + 1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        wave = self.waves[index]
        if self.augment:
            wave = wave * np.float32(self.rng.uniform(0.8, 1.2))
            wave = np.roll(wave, int(self.rng.integers(-16, 17)), axis=1)
        return wave, int(self.labels[index])


def collate(samples: list[tuple[np.ndarray, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    waves, labels = zip(*samples, strict=True)
    return torch.tensor(waves, dtype=torch.float32), torch.tensor(labels)


class StrideData(L.LightningDataModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def setup(self, stage: str) -> None:
        self.train_set = StrideWindows(self.config, self.config.windows, self.config.seed, augment=True)
        self.valid_set = StrideWindows(self.config, 512, self.config.seed + 100, augment=False)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.train_set, batch_size=self.config.batch_size, shuffle=True, drop_last=True, collate_fn=collate
        )

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.valid_set, batch_size=256, collate_fn=collate)


def conv_block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(inputs, outputs, 7, stride=stride, padding=3, bias=False),
        nn.BatchNorm1d(outputs),
        nn.ReLU(inplace=True),
    )


class StrideNet(L.LightningModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.body = nn.Sequential(
            conv_block(config.channels, 32, 2),
            conv_block(32, 64, 2),
            conv_block(64, 128, 2),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(128, config.gaits)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, waves: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(waves))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        waves, labels = batch
        return self.loss(self(waves), labels)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
        waves, labels = batch
        logits = self(waves)
        self.log("val_loss", self.loss(logits, labels))
        self.log("val_accuracy", (logits.argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.config.lr)


def main() -> None:
    config = Config()
    L.seed_everything(config.seed)
    trainer = L.Trainer(
        max_epochs=config.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(StrideNet(config), StrideData(config))
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

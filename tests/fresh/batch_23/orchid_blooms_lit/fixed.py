"""Tells orchid species from photos of their blooms, with Lightning."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")


@dataclass
class Config:
    photos: int = 384
    side: int = 48
    species: int = 12
    batch_size: int = 32
    workers: int = 2
    epochs: int = 16
    width: int = 24
    lr: float = 2e-3
    seed: int = 11


class BloomPhotos(Dataset):
    """Photos that are cropped, mirrored and brightened at random when they are read."""

    def __init__(self, config: Config) -> None:
        rng = np.random.default_rng(config.seed)
        self.side = config.side
        self.labels = rng.integers(0, config.species, config.photos)
        self.photos = rng.integers(0, 256, (config.photos, config.side + 8, config.side + 8, 3), dtype=np.uint8)
        for index, label in enumerate(self.labels):
            self.photos[index, :, :, label % 3] //= np.uint8(1 + label // 3)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        photo = torch.from_numpy(self.photos[index])
        top, left = torch.randint(0, 9, (2,)).tolist()
        photo = photo[top : top + self.side, left : left + self.side].permute(2, 0, 1).float() / 255
        if torch.rand(1).item() < 0.5:
            photo = photo.flip(2)
        photo = photo * (0.8 + 0.4 * torch.rand(1))
        return (photo - 0.45) / 0.25, int(self.labels[index])


class Blooms(L.LightningDataModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def setup(self, stage: str) -> None:
        self.train_set = BloomPhotos(self.config)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.train_set,
            batch_size=self.config.batch_size,
            shuffle=True,
            num_workers=self.config.workers,
            persistent_workers=True,
            drop_last=True,
        )


def stage(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class BloomClassifier(L.LightningModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.backbone = nn.Sequential(stage(3, width), stage(width, 2 * width), stage(2 * width, 4 * width))
        self.head = nn.Linear(4 * width, config.species)

    def forward(self, photos: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(photos).mean(dim=(2, 3)))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        photos, labels = batch
        loss = nn.functional.cross_entropy(self(photos), labels, label_smoothing=0.05)
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        loss = self.trainer.callback_metrics.get("train/loss")
        if loss is not None and self.current_epoch % 5 == 0:
            print(f"epoch {self.current_epoch}: loss {loss.item():.4f}")

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.config.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.config.epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main() -> None:
    config = Config()
    L.seed_everything(config.seed, verbose=False)
    trainer = L.Trainer(
        max_epochs=config.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(BloomClassifier(config), datamodule=Blooms(config))


if __name__ == "__main__":
    main()

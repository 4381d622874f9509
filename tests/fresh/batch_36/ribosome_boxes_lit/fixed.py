"""Kinds of particles in boxes of a tomogram, with Lightning: band-passed volumes and small 3D convolutions."""

import tempfile
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy

KINDS = ("ribosome", "proteasome", "membrane", "ferritin", "empty")


@dataclass
class Config:
    particles: int = 640
    box: int = 24
    low: float = 0.04
    high: float = 0.3
    batch_size: int = 16
    width: int = 12
    lr: float = 3e-3
    epochs: int = 6
    seed: int = 2017


def reconstruct(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Boxes around picked particles: blobs, barrels, sheets and shells below strong noise and a slow background."""
    rng = np.random.default_rng(config.seed)
    axis = np.arange(config.box) - config.box / 2
    z, y, x = np.meshgrid(axis, axis, axis, indexing="ij")
    boxes = np.empty((config.particles, config.box, config.box, config.box), dtype=np.float32)
    kinds = rng.integers(len(KINDS), size=config.particles)
    for number, kind in enumerate(kinds):
        sx, sy, sz = rng.uniform(-2, 2, 3)
        radius = np.sqrt((x - sx) ** 2 + (y - sy) ** 2 + (z - sz) ** 2)
        ring = np.sqrt((x - sx) ** 2 + (y - sy) ** 2)
        shape = (
            radius < 6 + np.sin(x),
            (np.abs(ring - 4) < 1.5) & (np.abs(z - sz) < 7),
            np.abs(z - sz + 0.3 * x) < 1.5,
            np.abs(radius - 5) < 1.2,
            np.zeros_like(radius, dtype=bool),
        )[kind]
        background = 1.5 * np.sin(0.1 * x + rng.uniform(0, 6)) + 0.05 * z
        boxes[number] = shape + background + rng.normal(0, 1.0, radius.shape)
    return boxes, kinds


def band_pass(volume: np.ndarray, low: float, high: float) -> np.ndarray:
    """Keeps the frequencies between low and high, given in cycles per voxel, with soft borders."""
    frequency = [np.fft.fftfreq(size) for size in volume.shape]
    fz, fy, fx = np.meshgrid(*frequency, indexing="ij")
    radius = np.sqrt(fz**2 + fy**2 + fx**2)
    keep = 1 / (1 + np.exp(-(radius - low) / 0.01)) / (1 + np.exp((radius - high) / 0.02))
    return np.fft.ifftn(np.fft.fftn(volume) * keep).real


class Boxes(Dataset):
    def __init__(self, boxes: np.ndarray, kinds: np.ndarray, low: float, high: float, mirror: bool):
        self.kinds = torch.from_numpy(kinds)
        self.low, self.high = low, high
        self.volumes = torch.stack([self.clean(box) for box in boxes])
        self.mirror = mirror

    def __len__(self) -> int:
        return len(self.volumes)

    def clean(self, box: np.ndarray) -> torch.Tensor:
        filtered = band_pass(box, self.low, self.high)
        return torch.from_numpy(((filtered - filtered.mean()) / filtered.std()).astype(np.float32))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        volume = self.volumes[index]
        if self.mirror:
            volume = torch.rot90(volume, int(torch.randint(4, ())), (1, 2))
        return volume.unsqueeze(0), self.kinds[index]


class ParticleData(L.LightningDataModule):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config

    def setup(self, stage: str | None = None) -> None:
        boxes, kinds = reconstruct(self.config)
        border = int(0.85 * len(boxes))
        band = (self.config.low, self.config.high)
        self.train_set = Boxes(boxes[:border], kinds[:border], *band, mirror=True)
        self.val_set = Boxes(boxes[border:], kinds[border:], *band, mirror=False)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, self.config.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, 2 * self.config.batch_size)


class ParticleNet(L.LightningModule):
    def __init__(self, config: Config):
        super().__init__()
        self.lr = config.lr
        width = config.width
        self.features = nn.Sequential(
            nn.Conv3d(1, width, 5, stride=2, padding=2),
            nn.GroupNorm(4, width),
            nn.ReLU(inplace=True),
            nn.Conv3d(width, 2 * width, 3, stride=2, padding=1),
            nn.GroupNorm(4, 2 * width),
            nn.ReLU(inplace=True),
            nn.Conv3d(2 * width, 4 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(4 * width, len(KINDS))
        self.accuracy = MulticlassAccuracy(len(KINDS), average="micro")

    def forward(self, boxes: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(boxes))

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        boxes, kinds = batch
        loss = F.cross_entropy(self(boxes), kinds)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        boxes, kinds = batch
        self.accuracy.update(self(boxes), kinds)
        self.log("val_accuracy", self.accuracy, on_epoch=True)

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main() -> None:
    config = Config()
    L.seed_everything(config.seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val_accuracy", mode="max")
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=config.epochs,
            callbacks=[best],
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(ParticleNet(config), datamodule=ParticleData(config))
        print(f"best validation accuracy {best.best_model_score.item():.3f}")


if __name__ == "__main__":
    main()

"""Sorts scanned posters of lantern festivals by the decade in which they were printed (Lightning)."""

import tempfile
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

DECADES = 6


def write_scans(folder: Path, count: int, side: int, seed: int = 5) -> list[tuple[Path, int]]:
    """Posters as JPEG files: lanterns (bright discs) on paper whose tint fades with age."""
    rng = np.random.default_rng(seed)
    grid_y, grid_x = np.mgrid[:side, :side] / side
    scans = []
    for number in range(count):
        decade = int(rng.integers(DECADES))
        paper = np.array([200 - 14 * decade, 190 - 6 * decade, 150 + 12 * decade], dtype=np.float32)
        picture = np.broadcast_to(paper, (side, side, 3)).copy()
        for _ in range(3 + decade):
            y, x, radius = rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9), rng.uniform(0.04, 0.12)
            disc = (grid_y - y) ** 2 + (grid_x - x) ** 2 < radius**2
            picture[disc] = rng.uniform(80, 255, 3)
        picture += rng.normal(scale=12.0, size=picture.shape)
        path = folder / f"poster_{number:04d}.jpg"
        Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(path, quality=88)
        scans.append((path, decade))
    return scans


def load_scan(path: Path, side: int) -> Image.Image:
    return Image.open(path).convert("RGB").resize((side, side), Image.Resampling.BILINEAR)


class PosterDataset(Dataset):
    def __init__(self, scans: list[tuple[Path, int]], side: int = 64) -> None:
        self.side = side
        self.scans = scans
        self.augment = v2.Compose(
            [
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.6, 0.6, 0.6], [0.2, 0.2, 0.2]),
            ]
        )

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int):
        path, decade = self.scans[index]
        return self.augment(load_scan(path, self.side)), decade


class PosterData(L.LightningDataModule):
    def __init__(self, folder: Path, count: int = 480, batch_size: int = 32) -> None:
        super().__init__()
        self.folder, self.count, self.batch_size = folder, count, batch_size

    def setup(self, stage: str) -> None:
        self.posters = PosterDataset(write_scans(self.folder, self.count, side=224))

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.posters, batch_size=self.batch_size, shuffle=True, drop_last=True)


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class PosterClassifier(L.LightningModule):
    def __init__(self, width: int = 12, lr: float = 1e-3) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            block(3, width),
            block(width, 2 * width),
            block(2 * width, 4 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * width, DECADES),
        )

    def training_step(self, batch, batch_idx):
        pictures, decades = batch
        loss = F.cross_entropy(self.net(pictures), decades, label_smoothing=0.05)
        self.log("loss", loss, on_step=False, on_epoch=True, prog_bar=False)
        return loss

    def on_train_epoch_end(self) -> None:
        print(f"epoch {self.current_epoch}: loss {float(self.trainer.callback_metrics['loss']):.3f}")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def main(epochs: int = 8) -> None:
    L.seed_everything(3)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(PosterClassifier(), datamodule=PosterData(Path(folder)))


if __name__ == "__main__":
    main()

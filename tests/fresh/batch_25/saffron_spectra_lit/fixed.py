"""Grades saffron by its near-infrared spectrum; spectra are distorted anew in every epoch (Lightning)."""

import argparse

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

GRADES = 5


def simulate_spectra(count: int, points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    grades = rng.integers(GRADES, size=count)
    axis = np.linspace(0.0, 1.0, points)
    centres = np.array([0.15, 0.32, 0.48, 0.71, 0.88])
    heights = 0.5 + rng.random((count, len(centres))) + 0.3 * np.eye(GRADES)[grades]
    peaks = np.exp(-(((axis[None, :] - centres[:, None]) / 0.05) ** 2))
    spectra = heights @ peaks + 0.05 * rng.normal(size=(count, points))
    return spectra.astype(np.float32), grades.astype(np.int64)


class SaffronSpectra(Dataset):
    def __init__(self, count: int, points: int, seed: int, distort: bool) -> None:
        self.spectra, self.grades = simulate_spectra(count, points, seed)
        self.axis = np.linspace(-1.0, 1.0, points, dtype=np.float32)
        self.distort = distort

    def __len__(self) -> int:
        return len(self.grades)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        spectrum = self.spectra[index]
        if self.distort:
            tilt, offset, gain = (torch.randn(3) * torch.tensor([0.1, 0.05, 0.05])).tolist()
            spectrum = np.roll(spectrum, int(torch.randint(-4, 5, (1,)))) * (1.0 + gain) + tilt * self.axis + offset
        return torch.from_numpy(np.ascontiguousarray(spectrum)), int(self.grades[index])


class SpectraData(L.LightningDataModule):
    def __init__(self, batch_size: int, workers: int, points: int = 512) -> None:
        super().__init__()
        self.batch_size, self.workers, self.points = batch_size, workers, points

    def setup(self, stage: str) -> None:
        self.training = SaffronSpectra(640, self.points, seed=1, distort=True)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.training,
            batch_size=self.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=self.workers,
            persistent_workers=True,
        )


class ConvUnit(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, 7, stride=stride, padding=3, bias=False)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(self.conv(x)))


class SaffronGrader(L.LightningModule):
    def __init__(self, width: int, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(
            ConvUnit(1, width, 2),
            ConvUnit(width, 2 * width, 2),
            ConvUnit(2 * width, 2 * width, 1),
            ConvUnit(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, GRADES)

    def forward(self, spectra: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(spectra.unsqueeze(1)).mean(dim=2))

    def training_step(self, batch, batch_idx):
        spectra, grades = batch
        logits = self(spectra)
        loss = F.cross_entropy(logits, grades)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        if self.current_epoch % 10 == 0:
            print(f"epoch {self.current_epoch}: {float(self.trainer.callback_metrics['loss']):.4f}")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    L.seed_everything(31)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=args.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(SaffronGrader(args.width, args.lr), datamodule=SpectraData(args.batch_size, args.workers))


if __name__ == "__main__":
    main()

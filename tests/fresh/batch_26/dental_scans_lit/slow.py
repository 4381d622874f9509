"""Noise taken out of dental X-rays by a residual network, trained with Lightning."""

import argparse
import logging

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def teeth(count: int, side: int, generator: torch.Generator) -> torch.Tensor:
    """Bright ellipses on a soft background, as crowns and roots look from afar."""
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    scans = torch.zeros(count, 1, side, side)
    for _ in range(5):
        centre = torch.rand(count, 2, 1, 1, generator=generator) * 1.6 - 0.8
        radius = torch.rand(count, 2, 1, 1, generator=generator) * 0.3 + 0.12
        distance = ((y - centre[:, 0]) / radius[:, 0]) ** 2 + ((x - centre[:, 1]) / radius[:, 1]) ** 2
        scans[:, 0] += torch.sigmoid(8 * (1 - distance)) * 0.4
    return scans.clamp(0, 1)


class ScanData(L.LightningDataModule):
    def __init__(self, count: int, side: int, batch_size: int) -> None:
        super().__init__()
        self.count, self.side, self.batch_size = count, side, batch_size

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(3)
        clean = teeth(self.count, self.side, generator)
        noisy = clean + 0.15 * torch.randn(clean.shape, generator=generator)
        cut = self.count - 4 * self.batch_size
        self.training = TensorDataset(noisy[:cut], clean[:cut])
        self.validation = TensorDataset(noisy[cut:], clean[cut:])

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.training, self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.validation, self.batch_size)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.2 * self.body(x)


class Denoiser(L.LightningModule):
    def __init__(self, width: int, depth: int, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            *(Residual(width) for _ in range(depth)),
            nn.Conv2d(width, 1, 3, padding=1),
        )
        self.train_ssim = StructuralSimilarityIndexMeasure(data_range=1.0)
        self.val_psnr = PeakSignalNoiseRatio(data_range=1.0)
        self.val_ssim = StructuralSimilarityIndexMeasure(data_range=1.0)

    def forward(self, noisy: torch.Tensor) -> torch.Tensor:
        return noisy - self.net(noisy)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        noisy, clean = batch
        restored = self(noisy)
        loss = F.mse_loss(restored, clean)
        self.log("train_loss", loss)
        self.log("train_ssim", self.train_ssim(restored.detach(), clean))
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        noisy, clean = batch
        restored = self(noisy)
        self.val_psnr.update(restored, clean)
        self.val_ssim.update(restored, clean)
        self.log_dict({"val_psnr": self.val_psnr, "val_ssim": self.val_ssim}, on_epoch=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scans", type=int, default=800)
    parser.add_argument("--side", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    L.seed_everything(3, verbose=False)
    data = ScanData(args.scans, args.side, args.batch_size)
    model = Denoiser(args.width, args.depth, lr=1e-3)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, data)
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

"""A variational autoencoder of postage stamps, drawn as one asks for them, under Lightning."""

import argparse
import logging
import warnings

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


class StampDataset(Dataset):
    """Small stamps with a frame, a ground colour and an emblem, each from the seed of its number."""

    def __init__(self, count: int, size: int):
        self.count, self.size = count, size
        axis = np.linspace(-1, 1, size, dtype=np.float32)
        self.x, self.y = np.meshgrid(axis, axis)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        rng = np.random.default_rng(index)
        stamp = np.empty((3, self.size, self.size), dtype=np.float32)
        stamp[:] = rng.uniform(0.4, 0.9, size=(3, 1, 1))
        cx, cy, radius = rng.uniform(-0.3, 0.3), rng.uniform(-0.3, 0.3), rng.uniform(0.2, 0.5)
        power = rng.choice([1.0, 2.0, 6.0])
        emblem = np.abs(self.x - cx) ** power + np.abs(self.y - cy) ** power < radius**power
        stamp[:, emblem] = rng.uniform(0, 0.5, size=(3, 1))
        stamp[:, np.maximum(np.abs(self.x), np.abs(self.y)) > 0.88] = 0.97
        return torch.from_numpy(stamp)


class StampData(pl.LightningDataModule):
    def __init__(self, count: int = 384, size: int = 32, batch_size: int = 64, num_workers: int = 2):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage: str | None = None) -> None:
        self.stamps = StampDataset(self.hparams.count, self.hparams.size)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(
            self.stamps,
            batch_size=self.hparams.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=self.hparams.num_workers,
            persistent_workers=True,
        )


def down(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 4, 2, 1), nn.GroupNorm(4, outside), nn.SiLU())


def up(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.ConvTranspose2d(inside, outside, 4, 2, 1), nn.GroupNorm(4, outside), nn.SiLU())


class StampVAE(pl.LightningModule):
    def __init__(self, width: int = 16, latent: int = 24, beta: float = 0.5, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(down(3, width), down(width, 2 * width), down(2 * width, 4 * width), nn.Flatten())
        self.to_latent = nn.Linear(4 * width * 16, 2 * latent)
        self.from_latent = nn.Linear(latent, 4 * width * 16)
        self.decoder = nn.Sequential(
            nn.Unflatten(1, (4 * width, 4, 4)),
            up(4 * width, 2 * width),
            up(2 * width, width),
            up(width, width),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, stamps):
        mean, log_var = self.to_latent(self.encoder(stamps)).chunk(2, dim=1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decoder(self.from_latent(latent)), mean, log_var

    def training_step(self, stamps, batch_idx):
        drawn, mean, log_var = self(stamps)
        reconstruction = F.binary_cross_entropy_with_logits(drawn, stamps, reduction="sum") / len(stamps)
        divergence = 0.5 * (mean.square() + log_var.exp() - 1 - log_var).sum(1).mean()
        loss = reconstruction + self.hparams.beta * divergence
        self.log_dict({"loss": loss, "kl": divergence}, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr, betas=(0.9, 0.99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--count", type=int, default=384)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seed", type=int, default=15)
    args = parser.parse_args()
    pl.seed_everything(args.seed, verbose=False)
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(StampVAE(), datamodule=StampData(args.count, batch_size=args.batch_size))
    print({name: round(value.item(), 2) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

"""Yield of vineyards from multispectral tiles: fresh training tiles in every epoch, a fixed set to validate on."""

import argparse
import io
import logging
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", module="lightning")


class Archive:
    """Scenes as they lie in an archive: two PNG of three bands each, and a yield."""

    def __init__(self, scenes, size, seed):
        rng = np.random.default_rng(seed)
        self.scenes = []
        for _ in range(scenes):
            vigour = rng.uniform(0.2, 1.0)
            rows = 0.5 + 0.5 * np.sin(np.arange(size) * rng.uniform(0.3, 0.6))
            base = vigour * np.broadcast_to(rows, (size, size))
            bands = [base * weight + rng.normal(0, 0.05, (size, size)) for weight in rng.uniform(0.3, 1.0, 6)]
            cube = (np.clip(np.stack(bands, -1), 0, 1) * 255).astype(np.uint8)
            self.scenes.append((self.png(cube[..., :3]), self.png(cube[..., 3:]), 12.0 * vigour))

    @staticmethod
    def png(bands):
        buffer = io.BytesIO()
        Image.fromarray(bands).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()

    def read(self, index):
        visible, infrared, tonnes = self.scenes[index]
        cube = [np.asarray(Image.open(io.BytesIO(data))) for data in (visible, infrared)]
        return np.concatenate(cube, axis=-1), tonnes


class VineyardData(L.LightningDataModule):
    def __init__(self, archive, held_out, per_epoch, tile=48, batch=32):
        super().__init__()
        self.archive, self.tile, self.batch = archive, tile, batch
        self.train_scenes = np.arange(held_out, len(archive.scenes))
        self.val_scenes = np.arange(held_out)
        self.per_epoch = per_epoch
        self.rng = np.random.default_rng(8)

    def setup(self, stage=None):
        if stage == "fit":
            self.channels = 6
            self.val_data = self.tiles(self.val_scenes, 2, np.random.default_rng(9))

    def tiles(self, scenes, each, rng):
        """Random tiles of scenes with two vegetation indices as further channels."""
        tiles, tonnes = [], []
        for scene in scenes:
            cube, harvest = self.archive.read(scene)
            for _ in range(each):
                y, x = rng.integers(0, cube.shape[0] - self.tile, 2)
                tiles.append(cube[y : y + self.tile, x : x + self.tile])
                tonnes.append(harvest)
        bands = torch.from_numpy(np.stack(tiles)).permute(0, 3, 1, 2).float() / 255.0
        ndvi = (bands[:, 3] - bands[:, 0]) / (bands[:, 3] + bands[:, 0] + 1e-3)
        ndre = (bands[:, 3] - bands[:, 4]) / (bands[:, 3] + bands[:, 4] + 1e-3)
        x = torch.cat([bands, ndvi[:, None], ndre[:, None]], dim=1)
        return TensorDataset(x, torch.tensor(tonnes, dtype=torch.float32))

    def train_dataloader(self):
        scenes = self.rng.choice(self.train_scenes, self.per_epoch, replace=False)
        data = self.tiles(scenes, 16, self.rng)
        return DataLoader(data, self.batch, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_data, 2 * self.batch)


class YieldNet(L.LightningModule):
    def __init__(self, lr=1e-3, width=12):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            self.stage(8, width, 1), self.stage(width, 2 * width, 2), self.stage(2 * width, 2 * width, 2)
        )
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 32), nn.SiLU())
        self.out = nn.Linear(32, 1)

    @staticmethod
    def stage(n_in, n_out, stride):
        return nn.Sequential(nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.SiLU(True))

    def forward(self, x):
        return self.out(self.head(self.net(x))).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, tonnes = batch
        loss = F.huber_loss(self(x), tonnes)
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, tonnes = batch
        self.log("val/mae", F.l1_loss(self(x), tonnes), on_epoch=True)

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            print(f"epoch {self.current_epoch}: mae {self.trainer.callback_metrics['val/mae']:.3f} t/ha")

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--scenes", type=int, default=150)
    parser.add_argument("--held-out", type=int, default=100)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    L.seed_everything(3, verbose=False)
    data = VineyardData(Archive(args.scenes, args.size, seed=6), args.held_out, per_epoch=24)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(YieldNet(lr=args.lr), datamodule=data)


if __name__ == "__main__":
    main()

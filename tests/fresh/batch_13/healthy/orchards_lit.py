"""Count trees on aerial tiles with Lightning: pictures held decoded, workers kept, validation once an epoch."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanAbsoluteError
from torchvision.transforms import v2


class Orchards(Dataset):
    def __init__(self, count, seed, augment, side=48):
        generator = torch.Generator().manual_seed(seed)
        self.counts = torch.randint(1, 30, (count,), generator=generator)
        self.tiles = torch.randint(20, 60, (count, 3, side, side), generator=generator, dtype=torch.uint8)
        for tile, trees in zip(self.tiles, self.counts.tolist(), strict=True):
            places = torch.randint(0, side - 4, (trees, 2), generator=generator).tolist()
            for top, left in places:
                tile[1, top : top + 4, left : left + 4] = 200
        flips = [v2.RandomHorizontalFlip(), v2.RandomVerticalFlip()] if augment else []
        self.transform = v2.Compose([*flips, v2.ToDtype(torch.float32, scale=True)])

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        return self.transform(self.tiles[index]), self.counts[index].float()


class OrchardData(L.LightningDataModule):
    def setup(self, stage=None):
        self.train_set, self.val_set = Orchards(1536, 1, augment=True), Orchards(192, 2, augment=False)

    def train_dataloader(self):
        return DataLoader(
            self.train_set, 32, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True, prefetch_factor=4
        )

    def val_dataloader(self):
        return DataLoader(self.val_set, 64)


class Counter(L.LightningModule):
    def __init__(self, width=24, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        layers, channels = [], 3
        for out in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(channels, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            layers += [nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
            channels = out
        self.density = nn.Sequential(*layers, nn.Conv2d(channels, 1, 1))
        self.val_error = MeanAbsoluteError()

    def forward(self, tiles):
        return F.softplus(self.density(tiles)).sum((1, 2, 3))

    def training_step(self, batch, batch_idx):
        tiles, counts = batch
        loss = F.smooth_l1_loss(self(tiles), counts)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        tiles, counts = batch
        self.val_error.update(self(tiles), counts)

    def on_validation_epoch_end(self):
        self.log("val_error", self.val_error)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        steps = self.trainer.estimated_stepping_batches
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    L.seed_everything(0, workers=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=4,
            callbacks=[LearningRateMonitor(), ModelCheckpoint(folder, monitor="val_error", save_weights_only=True)],
            logger=CSVLogger(folder, flush_logs_every_n_steps=500),
            enable_progress_bar=False,
        )
        trainer.fit(Counter(), datamodule=OrchardData())


if __name__ == "__main__":
    main()

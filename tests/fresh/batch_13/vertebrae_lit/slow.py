"""Segment vertebrae in slices with a small U-Net and Lightning."""

import tempfile

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_slices(size, seed, side=48):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(side).view(1, side, 1).float()
    columns = torch.arange(side).view(1, 1, side).float()
    centre = 14 + 20 * torch.rand(size, 2, 1, 1, generator=generator)
    radius = 6 + 8 * torch.rand(size, 1, 1, generator=generator)
    mask = ((rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2 < radius**2).float()
    image = mask + 0.5 * torch.randn(mask.shape, generator=generator)
    return TensorDataset(image[:, None], mask[:, None])


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.InstanceNorm2d(outside), nn.LeakyReLU(0.1),
        nn.Conv2d(outside, outside, 3, padding=1), nn.InstanceNorm2d(outside), nn.LeakyReLU(0.1),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        inside = (1, *widths[:-1])
        self.down = nn.ModuleList(block(i, o) for i, o in zip(inside, widths, strict=True))
        self.up = nn.ModuleList(block(widths[i] + widths[i - 1], widths[i - 1]) for i in (2, 1))
        self.out = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x):
        kept = []
        for level, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        kept.pop()
        for layer in self.up:
            x = layer(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.out(x)


class Segmenter(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = UNet()

    def loss(self, logits, mask):
        logits = logits.float()
        overlap = (logits.sigmoid() * mask).sum((1, 2, 3))
        dice = 1 - (2 * overlap + 1) / (logits.sigmoid().sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
        return F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()

    def training_step(self, batch, batch_idx):
        image, mask = batch
        loss = self.loss(self.net(image), mask)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        image, mask = batch
        self.log("val_loss", self.loss(self.net(image), mask))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    L.seed_everything(2)
    train = DataLoader(make_slices(320, 1), batch_size=4, shuffle=True)
    val = DataLoader(make_slices(32, 2), batch_size=8)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=2,
            precision="bf16-mixed",
            callbacks=[ModelCheckpoint(folder, monitor="val_loss")],
            logger=CSVLogger(folder),
            enable_progress_bar=False,
        )
        trainer.fit(Segmenter(), train, val)


if __name__ == "__main__":
    main()

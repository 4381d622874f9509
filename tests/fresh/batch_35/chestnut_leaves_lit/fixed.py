"""Diseases of chestnut leaves: a small network of separable convolutions under Lightning, best weights kept."""

import argparse
import math
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

STATES = ("healthy", "blight", "ink disease", "leaf miner", "rust")


def draw_leaves(count: int, size: int, seed: int) -> TensorDataset:
    """Green ellipses with veins; each disease has spots of its own size, number and colour."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(STATES), (count,), generator=generator)
    grid = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    bend = 0.5 * torch.randn(count, 1, 1, generator=generator)
    across = x + bend * y * y
    leaf = torch.sigmoid(12 * (0.8 - (across / 0.45) ** 2 - y**2))
    veins = 0.2 * torch.cos(math.pi * 7 * (y - across.abs()))
    images = torch.stack([0.2 * leaf, leaf * (0.6 + veins), 0.15 * leaf], dim=1)
    radii = torch.tensor([0.01, 0.22, 0.14, 0.06, 0.04])[labels].view(-1, 1, 1)
    tints = torch.tensor([[0.0, 0, 0], [0.4, -0.3, 0], [-0.1, -0.4, 0.2], [0.5, 0.3, 0.3], [0.6, -0.1, -0.1]])[labels]
    for number in range(6):
        centre = 1.2 * torch.rand(count, 2, 1, 1, generator=generator) - 0.6
        spot = torch.exp(-((x - centre[:, 0] * 0.5) ** 2 + (y - centre[:, 1]) ** 2) / radii**2)
        shown = (labels > (number > 2) * 2).view(-1, 1, 1, 1)
        images += shown * tints.view(-1, 3, 1, 1) * (spot * leaf).unsqueeze(1)
    images += 0.15 * torch.randn(images.shape, generator=generator)
    return TensorDataset(images, labels)


class LeafData(L.LightningDataModule):
    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.args = args

    def setup(self, stage: str | None = None) -> None:
        self.train_set = draw_leaves(self.args.leaves, self.args.size, self.args.seed)
        self.val_set = draw_leaves(self.args.val_leaves, self.args.size, self.args.seed + 1)

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_set, batch_size=self.args.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val_set, batch_size=self.args.val_batch_size)


class SeparableBlock(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.depthwise = nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False)
        self.pointwise = nn.Conv2d(inner, outer, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(inner), nn.BatchNorm2d(outer)])

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norms[0](self.depthwise(x)))
        return F.relu(self.norms[1](self.pointwise(x)))


class LeafModel(L.LightningModule):
    def __init__(self, width: int, lr: float, epochs: int):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        plan = [(1, 2, 1), (2, 2, 1), (2, 4, 2), (4, 4, 1), (4, 8, 2), (8, 8, 1)]
        self.blocks = nn.Sequential(*(SeparableBlock(i * width, o * width, s) for i, o, s in plan))
        self.head = nn.Linear(8 * width, len(STATES))
        self.accuracy = MulticlassAccuracy(len(STATES), average="micro")
        self.f1 = MulticlassF1Score(len(STATES))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(F.relu(self.stem(images))).mean((2, 3)))

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self(images), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        images, labels = batch
        predicted = self(images).argmax(1)
        self.accuracy.update(predicted, labels)
        self.f1.update(predicted, labels)

    def on_validation_epoch_end(self) -> None:
        self.log_dict({"val_accuracy": self.accuracy.compute(), "val_f1": self.f1.compute()})
        self.accuracy.reset()
        self.f1.reset()

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.hparams.epochs)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=768)
    parser.add_argument("--val-leaves", type=int, default=200)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--val-batch-size", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1904)
    args = parser.parse_args()

    L.seed_everything(args.seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val_f1", mode="max", save_weights_only=True)
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=args.epochs,
            callbacks=[best],
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(LeafModel(args.width, args.lr, args.epochs), datamodule=LeafData(args))
        score = best.best_model_score.item()
    accuracy = trainer.callback_metrics["val_accuracy"].item()
    print(f"last accuracy {accuracy:.3f}, best F1 {score:.3f}")


if __name__ == "__main__":
    main()

"""Grade tea leaves from small photographs with a compact inverted-bottleneck network."""

import argparse

import lightning as L
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

GRADES = 6


def make_leaves(count: int, size: int, seed: int) -> TensorDataset:
    """Green patches whose veins get denser with the grade."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, GRADES, (count,), generator=generator)
    axis = torch.linspace(0, 1, size)
    angle = torch.rand(count, 1, 1, generator=generator) * 3.1416
    across = axis[None, :, None] * angle.cos() + axis[None, None, :] * angle.sin()
    veins = torch.sin(across * (8.0 + 6.0 * labels[:, None, None]))
    base = torch.tensor([0.25, 0.55, 0.2])[None, :, None, None]
    images = base + 0.2 * veins[:, None] + 0.15 * torch.randn(count, 3, size, size, generator=generator)
    return TensorDataset(images, labels)


class LeafData(L.LightningDataModule):
    def __init__(self, batch_size: int, size: int, seed: int) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.size = size
        self.seed = seed

    def setup(self, stage: str) -> None:
        self.train_set = make_leaves(960, self.size, self.seed)
        self.valid_set = make_leaves(256, self.size, self.seed + 1)

    def train_dataloader(self) -> DataLoader:
        batches = BatchSampler(RandomSampler(self.train_set), self.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=batches, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        batches = BatchSampler(range(len(self.valid_set)), 64, drop_last=False)
        return DataLoader(self.valid_set, sampler=batches, batch_size=None)


class Bottleneck(nn.Module):
    """Expand, filter each channel, weigh the channels, project back."""

    def __init__(self, channels: int, expansion: int = 4) -> None:
        super().__init__()
        inner = channels * expansion
        self.expand = nn.Sequential(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.SiLU()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(inner, channels, 1),
            nn.SiLU(),
            nn.Conv2d(channels, inner, 1),
            nn.Sigmoid(),
        )
        self.project = nn.Sequential(nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.depthwise(self.expand(x))
        return x + self.project(hidden * self.squeeze(hidden))


def stage(inputs: int, outputs: int, blocks: int) -> nn.Sequential:
    down = [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU()]
    return nn.Sequential(*down, *(Bottleneck(outputs) for _ in range(blocks)))


class LeafGrader(L.LightningModule):
    def __init__(self, lr: float, steps: int) -> None:
        super().__init__()
        self.lr = lr
        self.steps = steps
        self.body = nn.Sequential(stage(3, 16, 1), stage(16, 24, 2), stage(24, 40, 2), stage(40, 64, 2))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, GRADES))
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, labels = batch
        loss = self.criterion(self(images), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        images, labels = batch
        accuracy = (self(images).argmax(dim=1) == labels).float().mean()
        self.log("valid_accuracy", accuracy, batch_size=len(labels))

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.02)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.lr, total_steps=self.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    L.seed_everything(3)
    data = LeafData(args.batch_size, args.size, seed=3)
    model = LeafGrader(args.lr, steps=args.epochs * (960 // args.batch_size))
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        gradient_clip_val=1.0,
        detect_anomaly=True,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, data)
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

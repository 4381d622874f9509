"""Walnuts sorted by the look of their shells, with Lightning; the images are one tensor of bytes."""

import argparse
import logging

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


class ShellImages(Dataset):
    """Takes whole batches at once."""

    def __init__(self, count, size, classes, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(classes, (count,), generator=generator)
        looks = torch.Generator().manual_seed(99)
        patterns = F.avg_pool2d(torch.randn(classes, 3, size, size, generator=looks), 5, 1, 2)
        noise = torch.randn(count, 3, size, size, generator=generator)
        self.images = ((patterns[self.labels] * 3 + noise) * 32 + 128).clamp(0, 255).to(torch.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, rows):
        rows = torch.as_tensor(rows)
        return self.images[rows], self.labels[rows]


class ShellModule(L.LightningModule):
    def __init__(self, classes=8, width=24, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        layers, inner = [], 3
        for outer in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(inner, outer, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()]
            inner = outer
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, classes))

    def forward(self, images):
        return self.net(images.float().sub_(128).div_(64).contiguous(memory_format=torch.channels_last))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        if torch.rand(()) < 0.5:
            images = images.flip(3)
        loss = F.cross_entropy(self(images), labels)
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(labels))
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        right = (self(images).argmax(dim=1) == labels).float().mean()
        self.log("accuracy", right, prog_bar=False, batch_size=len(labels))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9, fused=True)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def loader(dataset, size, shuffle):
    order = RandomSampler(dataset) if shuffle else range(len(dataset))
    return DataLoader(dataset, sampler=BatchSampler(order, size, drop_last=shuffle), batch_size=None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=3072)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    L.seed_everything(12, verbose=False)
    training = ShellImages(args.images, args.size, 8, seed=12)
    held_out = ShellImages(256, args.size, 8, seed=13)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    module = ShellModule().to(memory_format=torch.channels_last)
    trainer.fit(module, loader(training, args.batch_size, True), loader(held_out, 128, False))
    print({key: round(value.item(), 4) for key, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

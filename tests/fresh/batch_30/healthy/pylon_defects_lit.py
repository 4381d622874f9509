"""Classify defects of power pylons on drone photographs with a small residual network and Lightning."""

import argparse

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler
from torchmetrics.classification import MulticlassAccuracy

DEFECTS = ("none", "rust", "crack", "nest", "broken insulator")


class PylonPhotos(Dataset):
    """All photographs lie in one tensor, so a whole batch is taken by one index."""

    def __init__(self, count, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(len(DEFECTS), (count,), generator=generator)
        axis = torch.linspace(-1, 1, size)
        waves = torch.cos(3 * (1 + self.labels.float())[:, None] * axis)
        lattice = (waves.unsqueeze(2) * waves.unsqueeze(1)).unsqueeze(1)
        photographs = lattice + 0.5 * torch.randn(count, 3, size, size, generator=generator)
        self.photographs = photographs.contiguous(memory_format=torch.channels_last)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, indices):
        return self.photographs[indices], self.labels[indices]


class PylonData(L.LightningDataModule):
    def __init__(self, count=1920, size=40, batch_size=32):
        super().__init__()
        self.count, self.size, self.batch_size = count, size, batch_size

    def setup(self, stage=None):
        self.train = PylonPhotos(self.count, self.size, seed=41)
        self.valid = PylonPhotos(256, self.size, seed=42)

    def batches(self, photographs, sampler):
        return DataLoader(photographs, sampler=BatchSampler(sampler, self.batch_size, drop_last=False), batch_size=None)

    def train_dataloader(self):
        return self.batches(self.train, RandomSampler(self.train))

    def val_dataloader(self):
        return self.batches(self.valid, SequentialSampler(self.valid))


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, inputs):
        hidden = F.relu(self.norms[0](self.first(inputs)), inplace=True)
        return F.relu(self.norms[1](self.second(hidden)) + self.skip(inputs), inplace=True)


class PylonClassifier(L.LightningModule):
    def __init__(self, width=24, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.stages = nn.Sequential(
            Residual(width, width, 2), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2)
        )
        self.head = nn.Linear(4 * width, len(DEFECTS))
        self.accuracy = MulticlassAccuracy(len(DEFECTS))

    def forward(self, photographs):
        return self.head(self.stages(self.stem(photographs)).mean(dim=(2, 3)))

    def training_step(self, batch, batch_idx):
        photographs, labels = batch
        loss = F.cross_entropy(self(photographs), labels, label_smoothing=0.1)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        photographs, labels = batch
        self.accuracy.update(self(photographs), labels)
        self.log("valid_accuracy", self.accuracy, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=24)
    args = parser.parse_args()

    L.seed_everything(41, verbose=False)
    model = PylonClassifier(args.width).to(memory_format=torch.channels_last)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=args.epochs,
        check_val_every_n_epoch=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, PylonData())
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

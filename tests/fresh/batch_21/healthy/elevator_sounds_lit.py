"""Worn parts of elevators by their sound, in Lightning: spectrograms are made once, before training."""

import lightning
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

PARTS = ["rope", "sheave", "door", "brake", "guide", "none"]
RATE = 8000


def make_sounds(count, seconds, seed):
    """Hums with a click or a squeal whose pitch depends on the worn part."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randint(0, len(PARTS), (count,), generator=generator)
    time = torch.arange(int(RATE * seconds)) / RATE
    pitch = 150.0 + 380.0 * parts[:, None] + 60 * torch.rand(count, 1, generator=generator)
    beat = (torch.sin(2 * torch.pi * (1 + parts[:, None]) * time) > 0.5).float()
    noise = torch.randn(count, len(time), generator=generator)
    return torch.sin(2 * torch.pi * pitch * time) * beat + 1.2 * noise, parts


def spectrograms(sounds, size=256, hop=128):
    window = torch.hann_window(size)
    power = torch.stft(sounds, size, hop, window=window, return_complex=True).abs().square()
    return torch.log1p(power[:, :96])


class Sounds(Dataset):
    """All spectrograms in one tensor; an index is a whole batch."""

    def __init__(self, count, seed):
        sounds, self.parts = make_sounds(count, 1.0, seed)
        features = torch.cat([spectrograms(chunk) for chunk in sounds.split(512)])
        self.features = ((features - features.mean()) / features.std())[:, None]

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, places):
        return self.features[places], self.parts[places]


class Worn(lightning.LightningDataModule):
    def __init__(self, batch_size=64):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train_set, self.val_set = Sounds(2048, 61), Sounds(512, 62)

    def train_dataloader(self):
        sampler = BatchSampler(RandomSampler(self.train_set), self.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=sampler, batch_size=None)

    def val_dataloader(self):
        sampler = BatchSampler(SequentialSampler(self.val_set), 2 * self.batch_size, drop_last=False)
        return DataLoader(self.val_set, sampler=sampler, batch_size=None)


def stage(inner, outer):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, 2, 1, bias=False),
        nn.BatchNorm2d(outer),
        nn.ReLU(inplace=True),
        nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
        nn.BatchNorm2d(outer),
        nn.ReLU(inplace=True),
    )


class WearClassifier(lightning.LightningModule):
    def __init__(self, width=16, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(stage(1, width), stage(width, 2 * width), stage(2 * width, 4 * width))
        self.head = nn.Linear(4 * width, len(PARTS))

    def forward(self, features):
        return self.head(self.body(features).mean((2, 3)))

    def training_step(self, batch, batch_index):
        features, parts = batch
        loss = F.cross_entropy(self(features), parts)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(parts))
        return loss

    def validation_step(self, batch, batch_index):
        features, parts = batch
        scores = self(features)
        metrics = {
            "val_loss": F.cross_entropy(scores, parts),
            "val_accuracy": (scores.argmax(1) == parts).float().mean(),
        }
        self.log_dict(metrics, batch_size=len(parts))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.01, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.hparams.lr, total_steps=int(self.trainer.estimated_stepping_batches)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def main():
    lightning.seed_everything(61, verbose=False)
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(WearClassifier(), datamodule=Worn())
    print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

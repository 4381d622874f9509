"""Malignancy of skin lesions from an image and the patient's record, with Lightning."""

import tempfile
import warnings

import lightning.pytorch as pl
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore", module="lightning")
CLINICAL = ["age", "sex", "site", "itch", "growth", "bleeding", "elevation", "family", "phototype", "changed"]


class Lesions(Dataset):
    """Samples are dictionaries of tensors: the image, one entry per field of the record, an id and the label."""

    def __init__(self, count, size, seed):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
        self.samples = []
        for number in range(count):
            label = int(rng.random() < 0.35)
            wobble = rng.uniform(0.05, 0.15) + 0.15 * label
            angle = np.arctan2(y, x)
            border = 0.55 + wobble * np.sin(angle * rng.integers(3, 8) + rng.uniform(0, 6))
            spot = (np.hypot(x, y) < border) * rng.uniform(0.4, 0.8)
            image = np.stack([0.8 - spot * tone for tone in (0.5, 0.8, 0.9)]) + rng.normal(
                scale=0.05, size=(3, size, size)
            )
            record = {
                f"data.clinical.{name}": torch.tensor([rng.normal() + 0.4 * label * (i % 3 == 0)], dtype=torch.float32)
                for i, name in enumerate(CLINICAL)
            }
            self.samples.append(
                {
                    "data.sample_id": torch.tensor(number),
                    "data.image": torch.from_numpy(image.astype(np.float32)),
                    "data.label": torch.tensor(label),
                    **record,
                }
            )

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return dict(self.samples[index])


class EpochMetrics:
    """Collects what metrics need during an epoch and computes them at its end."""

    KEYS = ("data.sample_id", "data.label", "model.score")

    def __init__(self):
        self.collected = []

    def collect(self, batch):
        self.collected.append({key: batch[key] for key in self.KEYS})

    def compute(self):
        values = {key: torch.cat([part[key] for part in self.collected]) for key in self.KEYS}
        self.collected = []
        score, label = values["model.score"], values["data.label"]
        ranks = score.argsort().argsort().float() + 1
        positive = label.sum()
        auc = (ranks[label == 1].sum() - positive * (positive + 1) / 2) / (positive * (len(label) - positive))
        return {"auc": auc, "accuracy": ((score > 0.5) == (label == 1)).float().mean()}


class Fusion(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.record = nn.Sequential(nn.Linear(len(CLINICAL), 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Sequential(nn.Linear(2 * width + 32, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, image, record):
        return self.head(torch.cat([self.image(image), self.record(record)], dim=1))


class LesionModule(pl.LightningModule):
    def __init__(self, width=8, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.model = Fusion(width)
        self.train_metrics, self.validation_metrics = EpochMetrics(), EpochMetrics()

    def run(self, batch):
        record = torch.cat([batch[f"data.clinical.{name}"] for name in CLINICAL], dim=1)
        logits = self.model(batch["data.image"], record)
        batch["model.score"] = logits.detach().softmax(1)[:, 1]
        batch["model.features"] = logits.detach()
        return F.cross_entropy(logits, batch["data.label"])

    def training_step(self, batch, number):
        loss = self.run(batch)
        self.train_metrics.collect(batch)
        return loss

    def validation_step(self, batch, number):
        self.run(batch)
        self.validation_metrics.collect(batch)

    def on_train_epoch_end(self):
        results = self.train_metrics.compute()
        print(f"epoch {self.current_epoch}", {name: round(value.item(), 3) for name, value in results.items()})

    def on_validation_epoch_end(self):
        self.log_dict({f"val_{name}": value for name, value in self.validation_metrics.compute().items()})

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)


def main():
    pl.seed_everything(10, verbose=False)
    train, validation = Lesions(4096, 32, seed=10), Lesions(512, 32, seed=11)
    with tempfile.TemporaryDirectory() as directory:
        trainer = pl.Trainer(
            max_epochs=14,
            accelerator="cpu",
            devices=1,
            default_root_dir=directory,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(
            LesionModule(),
            DataLoader(train, batch_size=64, shuffle=True, drop_last=True),
            DataLoader(validation, batch_size=128),
        )


if __name__ == "__main__":
    main()

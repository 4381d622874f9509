"""Rates the danger of avalanches on slopes from maps of terrain, snow and wind, with Lightning."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import lightning as L
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

warnings.filterwarnings("ignore")


@dataclass
class Config:
    slopes: int = 1280
    held_out: int = 256
    side: int = 48
    layers: int = 6
    grades: int = 5
    width: int = 24
    batch_size: int = 32
    epochs: int = 4
    lr: float = 2e-3
    seed: int = 19


class Slopes(Dataset):
    """Maps in one tensor. A whole batch is read at once."""

    def __init__(self, count: int, config: Config, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.grades = torch.randint(0, config.grades, (count,), generator=generator)
        self.maps = torch.randn(count, config.layers, config.side, config.side, generator=generator)
        self.maps[:, 0] += 0.4 * self.grades.view(-1, 1, 1)

    def __len__(self) -> int:
        return len(self.grades)

    def __getitem__(self, chosen: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.maps[chosen], self.grades[chosen]


class SlopeData(L.LightningDataModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def setup(self, stage: str) -> None:
        self.known = Slopes(self.config.slopes, self.config, self.config.seed)
        self.held_out = Slopes(self.config.held_out, self.config, self.config.seed + 1)

    def train_dataloader(self) -> DataLoader:
        batches = BatchSampler(RandomSampler(self.known), self.config.batch_size, drop_last=True)
        return DataLoader(self.known, sampler=batches, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        batches = BatchSampler(SequentialSampler(self.held_out), 4 * self.config.batch_size, drop_last=False)
        return DataLoader(self.held_out, sampler=batches, batch_size=None)


class SlopeNet(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        steps = []
        width = config.layers
        for after in (config.width, 2 * config.width, 4 * config.width):
            steps += [
                nn.Conv2d(width, after, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
                nn.Conv2d(after, after, 3, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
            width = after
        self.features = nn.Sequential(*steps)
        self.head = nn.Linear(width, config.grades)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(maps).mean(dim=(2, 3)))


class SlopeRating(L.LightningModule):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.net = SlopeNet(config)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        maps, grades = batch
        loss = nn.functional.cross_entropy(self.net(maps), grades)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        maps, grades = batch
        hits = (self.net(maps).argmax(dim=1) == grades).float().mean()
        self.log("accuracy", hits, on_epoch=True, batch_size=len(grades))

    def on_train_epoch_end(self) -> None:
        values = {name: round(value.item(), 3) for name, value in self.trainer.callback_metrics.items()}
        print(f"epoch {self.current_epoch}: {values}")

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.config.lr, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.config.epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


if __name__ == "__main__":
    given = Config()
    L.seed_everything(given.seed, verbose=False)
    trainer = L.Trainer(
        max_epochs=given.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(SlopeRating(given), datamodule=SlopeData(given))

"""When lakes freeze and thaw: a multilayer perceptron on tables in memory, with Lightning and batched indexing."""

import tempfile
from dataclasses import dataclass

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler


@dataclass
class Config:
    winters: int = 60_000
    regions: int = 64
    batch_size: int = 512
    width: int = 512
    lr: float = 2e-3
    epochs: int = 6
    seed: int = 1877


def observe(config: Config) -> tuple[Tensor, Tensor, Tensor]:
    """Depth, area, height, latitude and twelve monthly temperatures; days of freezing and of thaw."""
    generator = torch.Generator().manual_seed(config.seed)
    region = torch.randint(config.regions, (config.winters,), generator=generator)
    lake = torch.randn(config.winters, 4, generator=generator)
    mildness = torch.randn(config.regions, generator=generator)[region].unsqueeze(1)
    month = torch.arange(12)
    warmth = torch.cos(2 * torch.pi * (month - 6) / 12) + 0.3 * mildness - 0.2 * lake[:, 3:]
    warmth = warmth + 0.2 * torch.randn(config.winters, 12, generator=generator)
    cold = F.softplus(-3 * warmth).cumsum(1)
    freeze = 2 - cold[:, 5] / 4 + 0.4 * lake[:, 0] + 0.1 * lake[:, 0] * lake[:, 1]
    thaw = cold[:, 11] / 5 - 0.3 * lake[:, 2]
    days = torch.stack([freeze, thaw], dim=1)
    days = days + 0.1 * torch.randn(days.shape, generator=generator)
    return torch.cat([lake, warmth], dim=1), region, (days - days.mean(0)) / days.std(0)


class Winters(Dataset):
    """Takes the numbers of all rows of a batch at once."""

    def __init__(self, *columns: Tensor):
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, indices: list[int]) -> tuple[Tensor, ...]:
        rows = torch.tensor(indices)
        return tuple(column[rows] for column in self.columns)


class IceData(L.LightningDataModule):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config

    def setup(self, stage: str | None = None) -> None:
        columns = observe(self.config)
        border = int(0.85 * self.config.winters)
        self.train_set = Winters(*(column[:border] for column in columns))
        self.val_set = Winters(*(column[border:] for column in columns))

    def train_dataloader(self) -> DataLoader:
        sampler = BatchSampler(RandomSampler(self.train_set), self.config.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=sampler, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        sampler = BatchSampler(SequentialSampler(self.val_set), 3000, drop_last=False)
        return DataLoader(self.val_set, sampler=sampler, batch_size=None)


class IceModel(L.LightningModule):
    def __init__(self, config: Config):
        super().__init__()
        self.lr = config.lr
        self.region = nn.Embedding(config.regions, 16)
        self.net = nn.Sequential(
            nn.Linear(32, config.width),
            nn.SiLU(),
            nn.Linear(config.width, config.width),
            nn.SiLU(),
            nn.Linear(config.width, config.width),
            nn.SiLU(),
            nn.Linear(config.width, 2),
        )

    def forward(self, lake: Tensor, region: Tensor) -> Tensor:
        return self.net(torch.cat([lake, self.region(region)], dim=1))

    def training_step(self, batch: tuple[Tensor, ...], index: int) -> Tensor:
        lake, region, days = batch
        loss = F.smooth_l1_loss(self(lake, region), days)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(days))
        return loss

    def validation_step(self, batch: tuple[Tensor, ...], index: int) -> None:
        lake, region, days = batch
        self.log("val_error", F.l1_loss(self(lake, region), days), batch_size=len(days))

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main() -> None:
    config = Config()
    L.seed_everything(config.seed, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val_error", save_weights_only=True)
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=config.epochs,
            callbacks=[best],
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(IceModel(config), datamodule=IceData(config))
        print(f"best error {best.best_model_score.item():.4f}")


if __name__ == "__main__":
    main()

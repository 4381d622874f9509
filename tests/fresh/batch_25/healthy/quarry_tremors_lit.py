"""Tells blasts in a quarry from small earthquakes by three channels of a seismometer (Lightning)."""

from __future__ import annotations

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def record_tremors(count: int, samples: int, seed: int) -> TensorDataset:
    """Bursts that decay: blasts have one sharp onset, earthquakes a first and a second wave."""
    generator = torch.Generator().manual_seed(seed)
    natural = torch.randint(2, (count,), generator=generator)
    time = torch.arange(samples) / samples
    onset = 0.1 + 0.3 * torch.rand(count, 1, 1, generator=generator)
    gap = 0.1 + 0.2 * torch.rand(count, 1, 1, generator=generator)
    pitch = 40.0 + 40.0 * torch.rand(count, 3, 1, generator=generator)

    def burst(start: torch.Tensor) -> torch.Tensor:
        since = time - start
        return torch.where(since > 0, torch.exp(-8.0 * since) * torch.sin(pitch * since), 0.0)

    waves = burst(onset) + natural.view(-1, 1, 1) * burst(onset + gap)
    waves = waves + 0.2 * torch.randn(count, 3, samples, generator=generator)
    return TensorDataset(waves, natural.float())


class TremorData(L.LightningDataModule):
    def __init__(self, count: int = 2_048, samples: int = 512, batch_size: int = 64) -> None:
        super().__init__()
        self.count, self.samples, self.batch_size = count, samples, batch_size

    def setup(self, stage: str) -> None:
        self.tremors = record_tremors(self.count, self.samples, seed=6)

    def train_dataloader(self) -> DataLoader:
        batches = BatchSampler(RandomSampler(self.tremors), self.batch_size, drop_last=True)
        return DataLoader(self.tremors, sampler=batches, batch_size=None)


class WaveUnit(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv1d(inputs, outputs, 9, stride=2, padding=4, bias=False),
            nn.BatchNorm1d(outputs),
            nn.ReLU(inplace=True),
        )


class TremorModel(L.LightningModule):
    def __init__(self, width: int = 48, lr: float = 2e-3) -> None:
        super().__init__()
        self.lr = lr
        self.units = nn.Sequential(WaveUnit(3, width), WaveUnit(width, 2 * width), WaveUnit(2 * width, 2 * width))
        self.head = nn.Linear(2 * width, 1)

    def forward(self, waves: torch.Tensor) -> torch.Tensor:
        return self.head(self.units(waves).amax(dim=2)).squeeze(1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        waves, natural = batch
        loss = F.binary_cross_entropy_with_logits(self(waves), natural)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        print(f"epoch {self.current_epoch}: {float(self.trainer.callback_metrics['loss']):.4f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr, fused=True)


def main() -> None:
    L.seed_everything(12)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=6,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(TremorModel(), datamodule=TremorData())


if __name__ == "__main__":
    main()

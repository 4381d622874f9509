"""Growth of kelp from currents and light along a coast: temporal convolutions, trained by Lightning on blocks."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

VARIABLES = 10


def identity(batch):
    return batch


class KelpWindows(Dataset):
    """Windows are cut from one tensor, a whole batch at a time."""

    def __init__(self, series: torch.Tensor, growth: torch.Tensor, length: int):
        self.windows = series.unfold(0, length, 2)  # a view: windows, variables, days
        self.growth = growth[length - 1 :: 2]

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, rows: list[int]):
        return self.windows[rows], self.growth[rows]


class KelpData(L.LightningDataModule):
    def __init__(self, days: int = 16_000, length: int = 64, batch_size: int = 48, seed: int = 12):
        super().__init__()
        self.days = days
        self.length = length
        self.batch_size = batch_size
        self.seed = seed

    def setup(self, stage: str) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        season = torch.sin(torch.arange(self.days)[:, None] * 0.0172 + torch.arange(VARIABLES))
        series = season + 0.5 * torch.randn(self.days, VARIABLES, generator=generator)
        light = F.avg_pool1d(series[:, 0][None, None], 21, stride=1, padding=10)[0, 0]
        growth = light * torch.sigmoid(series[:, 3]) + 0.05 * torch.randn(self.days, generator=generator)
        cut = int(0.85 * self.days)
        self.train_set = KelpWindows(series[:cut], growth[:cut], self.length)
        self.valid_set = KelpWindows(series[cut:], growth[cut:], self.length)

    def train_dataloader(self) -> DataLoader:
        rows = BatchSampler(RandomSampler(self.train_set), self.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=rows, batch_size=None, collate_fn=identity)

    def val_dataloader(self) -> DataLoader:
        rows = BatchSampler(SequentialSampler(self.valid_set), 400, drop_last=False)
        return DataLoader(self.valid_set, sampler=rows, batch_size=None, collate_fn=identity)


class Block(nn.Module):
    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.pad = 2 * dilation
        self.norm = nn.BatchNorm1d(channels)
        self.wide = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.mix(F.gelu(self.wide(F.pad(self.norm(x), (self.pad, 0)))))


class KelpModule(L.LightningModule):
    def __init__(self, channels: int = 96, blocks: int = 4, lr: float = 2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv1d(VARIABLES, channels, 1)
        self.blocks = nn.Sequential(*[Block(channels, 2**i) for i in range(blocks)])
        self.head = nn.Linear(channels, 1)

    def forward(self, windows):
        return self.head(self.blocks(self.stem(windows))[:, :, -1]).squeeze(1)

    def training_step(self, batch, batch_idx):
        windows, growth = batch
        loss = F.smooth_l1_loss(self(windows), growth)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(growth))
        return loss

    def validation_step(self, batch, batch_idx):
        windows, growth = batch
        self.log("valid_loss", F.smooth_l1_loss(self(windows), growth), batch_size=len(growth))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main() -> None:
    L.seed_everything(12)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(KelpModule(), datamodule=KelpData())
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

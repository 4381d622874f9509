"""Forecast how much water a field needs: a transformer over patches of the past, with Lightning."""

import argparse
import logging
import math
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


def soil_moisture(fields, hours, seed):
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(hours, dtype=torch.float32)
    phase = torch.rand(fields, 1, generator=generator) * 2 * math.pi
    daily = torch.sin(2 * math.pi * time / 24 + phase)
    weekly = 0.5 * torch.sin(2 * math.pi * time / 168 + phase)
    rain = (torch.rand(fields, hours, generator=generator) < 0.01).float()
    decay = torch.exp(-torch.arange(72) / 20)
    wet = F.conv1d(F.pad(rain[:, None], (71, 0)), decay.flip(0)[None, None]).squeeze(1)
    series = daily + weekly + wet + 0.1 * torch.randn(fields, hours, generator=generator)
    return (series - series.mean(1, keepdim=True)) / series.std(1, keepdim=True)


class Windows(Dataset):
    """Windows over all fields; takes a list of numbers and returns a batch."""

    def __init__(self, series, past, future, stride=8):
        self.views = series.unfold(1, past + future, stride)
        self.past = past
        self.per_field = self.views.shape[1]

    def __len__(self):
        return self.views.shape[0] * self.per_field

    def __getitem__(self, numbers):
        numbers = torch.as_tensor(numbers)
        windows = self.views[numbers // self.per_field, numbers % self.per_field]
        return windows[:, : self.past], windows[:, self.past :]


class FieldData(L.LightningDataModule):
    def __init__(self, past, future, batch_size):
        super().__init__()
        self.past, self.future, self.batch_size = past, future, batch_size

    def setup(self, stage=None):
        series = soil_moisture(24, 2000, seed=53)
        self.train_set = Windows(series[:, :1600], self.past, self.future)
        self.val_set = Windows(series[:, 1500:], self.past, self.future, stride=24)

    def loader(self, dataset, sampler, drop_last):
        return DataLoader(dataset, sampler=BatchSampler(sampler, self.batch_size, drop_last), batch_size=None)

    def train_dataloader(self):
        return self.loader(self.train_set, RandomSampler(self.train_set), True)

    def val_dataloader(self):
        return self.loader(self.val_set, SequentialSampler(self.val_set), False)


class Layer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + F.dropout(self.mlp(self.norm2(x)), self.dropout, self.training)


class WaterForecaster(L.LightningModule):
    def __init__(self, past, future, *, patch=12, width=96, heads=4, layers=3, lr=1e-3, dropout=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.enter = nn.Linear(patch, width)
        self.places = nn.Parameter(0.02 * torch.randn(past // patch, width))
        self.layers = nn.Sequential(*(Layer(width, heads, dropout) for _ in range(layers)))
        self.leave = nn.Linear(width * (past // patch), future)

    def forward(self, past):
        patches = past.unflatten(1, (-1, self.hparams.patch))
        return self.leave(self.layers(self.enter(patches) + self.places).flatten(1))

    def training_step(self, batch, batch_idx):
        past, future = batch
        loss = F.l1_loss(self(past), future)
        self.log("train_mae", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        past, future = batch
        self.log("val_mae", F.l1_loss(self(past), future), prog_bar=False)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--past", type=int, default=288)
    parser.add_argument("--future", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    L.seed_everything(53, verbose=False)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=args.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    trainer.fit(WaterForecaster(args.past, args.future), FieldData(args.past, args.future, args.batch_size))
    metrics = trainer.callback_metrics
    print(f"train mae {metrics['train_mae']:.3f}, validation mae {metrics['val_mae']:.3f}")


if __name__ == "__main__":
    main()

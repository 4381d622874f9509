"""Visibility at a lighthouse in the coming hours from sensors of the past two days, with Lightning."""

import argparse
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

SENSORS = 6


def simulate(hours: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(hours).unsqueeze(1)
    periods = torch.tensor([24.0, 24.0, 12.4, 168.0, 24.0, 12.4])
    shift = 6.3 * torch.rand(SENSORS, generator=generator)
    waves = torch.sin(2 * torch.pi * time / periods + shift)
    drift = 0.05 * torch.randn(hours, SENSORS, generator=generator).cumsum(0)
    drift = drift - F.avg_pool1d(drift.t().unsqueeze(0), 201, 1, 100, count_include_pad=False)[0].t()
    mixing = torch.eye(SENSORS) + 0.3 * torch.randn(SENSORS, SENSORS, generator=generator)
    return (waves + drift) @ mixing + 0.1 * torch.randn(hours, SENSORS, generator=generator)


class Windows(Dataset):
    """Takes a list of indices and gives a whole batch."""

    def __init__(self, series: Tensor, past: int, future: int):
        self.windows = series.unfold(0, past + future, 1)
        self.past = past

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        chosen = self.windows[indices]
        return chosen[:, :, : self.past].transpose(1, 2), chosen[:, 0, self.past :]


class LighthouseData(L.LightningDataModule):
    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.args = args

    def setup(self, stage: str | None = None) -> None:
        series = simulate(self.args.hours, self.args.seed)
        border = int(0.85 * len(series))
        series = (series - series[:border].mean(0)) / series[:border].std(0)
        self.train_set = Windows(series[:border], self.args.past, self.args.future)
        self.val_set = Windows(series[border:], self.args.past, self.args.future)

    def train_dataloader(self) -> DataLoader:
        sampler = BatchSampler(RandomSampler(self.train_set), self.args.batch_size, drop_last=True)
        return DataLoader(self.train_set, sampler=sampler, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        sampler = BatchSampler(SequentialSampler(self.val_set), 512, drop_last=False)
        return DataLoader(self.val_set, sampler=sampler, batch_size=None)


class Mixer(nn.Module):
    def __init__(self, patches: int, width: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.along = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.across = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.along(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.norms[1](x))


class VisibilityModel(L.LightningModule):
    def __init__(self, past: int, future: int, patch: int, width: int, blocks: int, lr: float):
        super().__init__()
        self.save_hyperparameters()
        patches = past // patch
        self.embed = nn.Linear(patch * SENSORS, width)
        self.mixers = nn.Sequential(*(Mixer(patches, width) for _ in range(blocks)))
        self.head = nn.Linear(patches * width, future)

    def forward(self, past: Tensor) -> Tensor:
        patches = past.reshape(len(past), -1, self.hparams.patch * SENSORS)
        return self.head(self.mixers(self.embed(patches)).flatten(1))

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        past, future = batch
        loss = F.mse_loss(self(past), future)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(past))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        past, future = batch
        self.log("val_loss", F.mse_loss(self(past), future), batch_size=len(past))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=12_000)
    parser.add_argument("--past", type=int, default=48)
    parser.add_argument("--future", type=int, default=12)
    parser.add_argument("--patch", type=int, default=4)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=15)
    args = parser.parse_args()

    L.seed_everything(args.seed, verbose=False)
    model = VisibilityModel(args.past, args.future, args.patch, args.width, args.blocks, args.lr)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val_loss", save_weights_only=True)
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=args.epochs,
            callbacks=[best],
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(model, datamodule=LighthouseData(args))
        print(f"best validation loss {best.best_model_score.item():.4f}")


if __name__ == "__main__":
    main()

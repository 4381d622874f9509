"""Sugar of grapes at harvest from the weather and soil of a vineyard, with Lightning."""

import argparse
import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def harvests(rows: int, features: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, features, generator=generator)
    first = torch.randn(features, 24, generator=generator) / features**0.5
    second = torch.randn(24, generator=generator) / 24**0.5
    brix = torch.tanh(2 * inputs @ first) @ second + 0.3 * inputs[:, 0] * inputs[:, 1]
    return inputs, brix + 0.1 * torch.randn(rows, generator=generator)


class HarvestData(L.LightningDataModule):
    def __init__(self, args: argparse.Namespace):
        super().__init__()
        self.args = args

    def setup(self, stage: str | None = None) -> None:
        inputs, brix = harvests(self.args.rows, self.args.features, self.args.seed)
        border = int(0.85 * len(inputs))
        self.train_rows = TensorDataset(inputs[:border], brix[:border])
        self.val_rows = TensorDataset(inputs[border:], brix[border:])

    def train_dataloader(self) -> DataLoader:
        sampler = BatchSampler(RandomSampler(self.train_rows), self.args.batch_size, drop_last=True)
        return DataLoader(self.train_rows, sampler=sampler, batch_size=None)

    def val_dataloader(self) -> DataLoader:
        sampler = BatchSampler(range(len(self.val_rows)), 2048, drop_last=False)
        return DataLoader(self.val_rows, sampler=sampler, batch_size=None)


class GatedBlock(nn.Module):
    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.outer(F.glu(self.inner(self.norm(x)))))


class SugarModel(L.LightningModule):
    def __init__(self, features: int, width: int, blocks: int, dropout: float, lr: float, weight_decay: float):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(features, width),
            *(GatedBlock(width, dropout) for _ in range(blocks)),
            nn.LayerNorm(width),
            nn.Linear(width, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).squeeze(-1)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        inputs, brix = batch
        loss = F.smooth_l1_loss(self(inputs), brix)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> None:
        inputs, brix = batch
        self.log("val_mae", F.l1_loss(self(inputs), brix), batch_size=len(brix))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay, fused=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--features", type=int, default=36)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=27)
    args = parser.parse_args()

    L.seed_everything(args.seed, verbose=False)
    model = SugarModel(args.features, args.width, args.blocks, args.dropout, args.lr, args.weight_decay)
    with tempfile.TemporaryDirectory() as folder:
        best = ModelCheckpoint(folder, monitor="val_mae", mode="min", save_weights_only=True)
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=args.epochs,
            callbacks=[best, EarlyStopping("val_mae", patience=4)],
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(model, datamodule=HarvestData(args))
        print(f"best mean absolute error {best.best_model_score.item():.3f}")


if __name__ == "__main__":
    main()

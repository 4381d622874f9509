"""Daily melt of glaciers from the weather of the days before: a small transformer, trained by Lightning."""

from argparse import ArgumentParser, Namespace

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

VARIABLES = 7  # temperature, sun, cloud, wind, snowfall, rain, humidity


def weather(glaciers: int, days: int, generator: torch.Generator) -> torch.Tensor:
    season = torch.sin(torch.arange(days) * (2 * torch.pi / 365))
    noise = torch.randn(glaciers, days, VARIABLES, generator=generator)
    noise = 0.6 * noise + 0.4 * noise.roll(1, dims=1)
    phases = torch.randn(glaciers, 1, VARIABLES, generator=generator)
    return season[None, :, None] * (1 + 0.2 * phases) + noise


def melt_of(series: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Degree days above a threshold, once the snow that lies on the ice is gone."""
    warmth = F.relu(series[..., 0] + 0.4 * series[..., 1] - 0.2)
    snow = F.relu(series[..., 4]).unfold(1, 10, 1).mean(-1)
    melt = warmth[:, 9:] * torch.exp(-snow)
    return melt + 0.05 * torch.randn(melt.shape, generator=generator)


class Windows(Dataset):
    def __init__(self, series: torch.Tensor, melt: torch.Tensor, length: int, stride: int):
        self.series = series
        self.melt = melt
        self.length = length
        starts = range(9, series.size(1) - length, stride)
        self.places = [(glacier, start) for glacier in range(series.size(0)) for start in starts]

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int):
        glacier, start = self.places[index]
        stop = start + self.length
        return self.series[glacier, start:stop], self.melt[glacier, start - 9 : stop - 9]


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class MeltTransformer(L.LightningModule):
    def __init__(self, width: int, depth: int, heads: int, length: int, lr: float):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Linear(VARIABLES, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, series):
        hidden = self.embed(series) + self.position
        return F.softplus(self.head(self.norm(self.blocks(hidden)))).squeeze(-1)

    def training_step(self, batch, batch_idx):
        series, melt = batch
        loss = F.smooth_l1_loss(self(series), melt)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        series, melt = batch
        self.log("valid_error", F.l1_loss(self(series), melt))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def arguments() -> Namespace:
    parser = ArgumentParser()
    parser.add_argument("--glaciers", type=int, default=20)
    parser.add_argument("--days", type=int, default=900)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    L.seed_everything(5)
    generator = torch.Generator().manual_seed(5)
    series = weather(args.glaciers, args.days, generator)
    melt = melt_of(series, generator)
    cut = args.glaciers - 4
    train_set = Windows(series[:cut], melt[:cut], args.length, stride=12)
    valid_set = Windows(series[cut:], melt[cut:], args.length, stride=48)
    module = MeltTransformer(args.width, args.depth, 4, args.length, args.lr)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=args.epochs,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        module,
        DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True),
        DataLoader(valid_set, batch_size=64),
    )
    print({name: round(float(value), 4) for name, value in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()

"""Salinity of a lagoon some hours ahead from buoys: a patched transformer, trained with Lightning."""

import logging
from dataclasses import dataclass

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@dataclass
class Settings:
    buoys: int = 8
    window: int = 192
    patch: int = 12
    horizon: int = 24
    width: int = 96
    heads: int = 4
    layers: int = 2
    batch_size: int = 24
    steps_per_epoch: int = 80
    epochs: int = 3
    lr: float = 1e-3


class Buoys(torch.utils.data.IterableDataset):
    """Whole batches of windows, cut from the series by one index."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        generator = torch.Generator().manual_seed(4)
        time = torch.arange(6_000, dtype=torch.float32)
        tide = torch.sin(time / 12.4 * 6.28).unsqueeze(1) * torch.rand(settings.buoys, generator=generator)
        rain = torch.randn(6_000, settings.buoys, generator=generator).cumsum(dim=0) * 0.02
        series = tide + rain + 0.05 * torch.randn(6_000, settings.buoys, generator=generator)
        self.series = (series - series.mean(dim=0)) / series.std(dim=0)
        self.span = torch.arange(settings.window + settings.horizon)

    def __iter__(self):
        last = len(self.series) - len(self.span)
        for starts in torch.randint(0, last, (self.settings.steps_per_epoch, self.settings.batch_size, 1)):
            cut = self.series[starts + self.span]
            yield cut[:, : self.settings.window], cut[:, self.settings.window :]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts.unbind(0))
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class SalinityModel(L.LightningModule):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        patches = settings.window // settings.patch
        self.embed = nn.Linear(settings.patch, settings.width)
        self.place = nn.Parameter(torch.randn(patches, settings.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(settings.width, settings.heads) for _ in range(settings.layers)))
        self.forecast = nn.Linear(patches * settings.width, settings.horizon)

    def forward(self, past: torch.Tensor) -> torch.Tensor:
        batch, _, buoys = past.shape
        patches = past.transpose(1, 2).reshape(batch * buoys, -1, self.settings.patch)
        hidden = self.blocks(self.embed(patches) + self.place)
        return self.forecast(hidden.flatten(1)).view(batch, buoys, -1).transpose(1, 2)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        past, future = batch
        loss = F.mse_loss(self(past), future)
        self.log("loss", loss, on_step=False, on_epoch=True, batch_size=len(past))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.settings.lr, fused=True)


def main() -> None:
    settings = Settings()
    L.seed_everything(4, verbose=False)
    loader = torch.utils.data.DataLoader(Buoys(settings), batch_size=None)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=settings.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(SalinityModel(settings), loader)
    print(f"loss {trainer.callback_metrics['loss'].item():.4f}")


if __name__ == "__main__":
    main()

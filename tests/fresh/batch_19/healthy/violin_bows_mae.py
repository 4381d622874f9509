"""Masked autoencoder on the motion of violin bows: patches of six channels, only the visible ones are encoded."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Settings:
    channels: int = 6
    length: int = 512
    patch: int = 16
    dim: int = 96
    depth: int = 4
    keep: float = 0.4
    micro_batch: int = 16
    accumulate: int = 2
    updates: int = 120
    lr: float = 1.5e-3
    ema: float = 0.99


def strokes(count: int, s: Settings, seed: int) -> torch.Tensor:
    """Sums of two sines for each channel, cut into patches once."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(s.length) / s.length
    rate = 2 + 20 * torch.rand(count, s.channels, 2, 1, generator=generator)
    phase = 6.28 * torch.rand(count, s.channels, 2, 1, generator=generator)
    motion = torch.sin(6.28 * rate * time + phase).sum(dim=2)
    motion += 0.1 * torch.randn(motion.shape, generator=generator)
    patches = motion.unflatten(2, (-1, s.patch)).transpose(1, 2)
    return patches.flatten(2).contiguous()


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class MaskedAutoencoder(nn.Module):
    def __init__(self, s: Settings) -> None:
        super().__init__()
        tokens, self.kept = s.length // s.patch, int(s.keep * s.length // s.patch)
        self.embed = nn.Linear(s.channels * s.patch, s.dim)
        self.place = nn.Parameter(0.02 * torch.randn(tokens, s.dim))
        self.encoder = nn.Sequential(*(Layer(s.dim) for _ in range(s.depth)), nn.LayerNorm(s.dim))
        half = s.dim // 2
        self.narrow = nn.Linear(s.dim, half)
        self.mask_token = nn.Parameter(torch.zeros(half))
        self.decoder_place = nn.Parameter(0.02 * torch.randn(tokens, half))
        self.decoder = nn.Sequential(Layer(half), nn.LayerNorm(half), nn.Linear(half, s.channels * s.patch))

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        batch, tokens, _ = patches.shape
        order = torch.rand(batch, tokens).argsort(dim=1)
        seen, hidden = order[:, : self.kept], order[:, self.kept :]
        rows = torch.arange(batch)[:, None]
        encoded = self.narrow(self.encoder(self.embed(patches[rows, seen]) + self.place[seen]))
        full = self.mask_token.expand(batch, tokens, -1).clone()
        full[rows, seen] = encoded
        drawn = self.decoder(full + self.decoder_place)
        return F.mse_loss(drawn[rows, hidden], patches[rows, hidden])


class Average:
    """Exponential moving average of all parameters, updated by one call over lists."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.source = list(model.parameters())
        self.shadow = [p.detach().clone() for p in self.source]
        self.decay = decay

    @torch.no_grad()
    def update(self) -> None:
        torch._foreach_lerp_(self.shadow, self.source, 1 - self.decay)


def rows_forever(count: int, size: int):
    while True:
        yield from (rows for rows in torch.randperm(count).split(size) if len(rows) == size)


@torch.inference_mode()
def held_out_loss(model: MaskedAutoencoder, data: torch.Tensor) -> float:
    model.eval()
    loss = torch.stack([model(part) for part in data.split(64)]).mean().item()
    model.train()
    return loss


def pretrain(s: Settings, folder: Path) -> None:
    data, held_out = strokes(1_000, s, seed=1), strokes(128, s, seed=2)
    model = MaskedAutoencoder(s)
    average = Average(model, s.ema)
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr, betas=(0.9, 0.95), fused=True)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=10)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, s.updates - 10)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[10])
    rows = rows_forever(len(data), s.micro_batch)
    running = torch.zeros(())
    for update in range(1, s.updates + 1):
        for _ in range(s.accumulate):
            loss = model(data[next(rows)]) / s.accumulate
            loss.backward()
            running += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        average.update()
        if update % 40 == 0:
            print(f"update {update}: loss {running.item() / 40:.4f}, held out {held_out_loss(model, held_out):.4f}")
            running.zero_()
    torch.save({"model": model.state_dict(), "average": average.shadow}, folder / "mae.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=Settings.updates)
    parser.add_argument("--lr", type=float, default=Settings.lr)
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as place:
        pretrain(Settings(updates=options.updates, lr=options.lr), Path(place))

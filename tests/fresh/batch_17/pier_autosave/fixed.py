"""How much do the piers of a bridge sway? A mixer over windows of many gauges, saved as it goes."""

import os
import tempfile
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from checkpoint import save_snapshot
from torch import nn


@dataclass(frozen=True)
class Config:
    gauges: int = 24
    hours: int = 6000
    history: int = 64
    ahead: int = 8
    width: int = 192
    depth: int = 3
    batch_size: int = 24
    steps: int = 240
    save_every: int = 20
    lr: float = 1e-3


def make_gauges(config, seed):
    """Wind that all gauges feel, each with a delay and a swing of its own."""
    gen = torch.Generator().manual_seed(seed)
    wind = F.avg_pool1d(torch.randn(1, config.hours + 80, generator=gen), 15, 1, 7) * 2
    delay = torch.randint(0, 40, (config.gauges,), generator=gen)
    felt = torch.stack([wind[0, 40 - d : 40 - d + config.hours] for d in delay.tolist()])
    swing = torch.sin(torch.arange(config.hours) / (5 + 10 * torch.rand(config.gauges, 1, generator=gen)))
    return felt + 0.5 * swing + 0.1 * torch.randn(felt.shape, generator=gen)


class MixerBlock(nn.Module):
    def __init__(self, gauges, width):
        super().__init__()
        self.norm_time, self.norm_gauge = nn.LayerNorm(width), nn.LayerNorm(width)
        self.time = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.gauge = nn.Sequential(nn.Linear(gauges, 2 * gauges), nn.GELU(), nn.Linear(2 * gauges, gauges))

    def forward(self, x):
        x = x + self.gauge(self.norm_gauge(x).transpose(1, 2)).transpose(1, 2)
        return x + self.time(self.norm_time(x))


class SwayMixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.enter = nn.Linear(config.history, config.width)
        self.blocks = nn.Sequential(*[MixerBlock(config.gauges, config.width) for _ in range(config.depth)])
        self.leave = nn.Linear(config.width, config.ahead)

    def forward(self, x):
        last = x[..., -1:]
        return last + self.leave(self.blocks(self.enter(x - last)))


def main(config, folder):
    torch.manual_seed(0)
    series = make_gauges(config, seed=7)
    windows = series.unfold(1, config.history + config.ahead, 1)
    model = SwayMixer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    snapshot = os.path.join(folder, "latest.ckpt")
    for step in range(1, config.steps + 1):
        batch = windows[:, torch.randint(windows.shape[1], (config.batch_size,))].transpose(0, 1)
        loss = F.l1_loss(model(batch[..., : config.history]), batch[..., config.history :])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % config.save_every == 0:
            save_snapshot(snapshot, model, optimizer, step, compress=False)
            print(f"step {step}: {loss.item():.4f}, snapshot written")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Config(), folder)

"""Contrastive learning of movements from windows of a wrist sensor: two views of each window, NT-Xent."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    windows: int = 5120
    channels: int = 6
    length: int = 64
    batch_size: int = 256
    epochs: int = 40
    temperature: float = 0.2
    lr: float = 1e-3


def movements(cfg, seed=0, kinds=8):
    """Each kind of movement has its own frequencies; phase and strength differ."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(kinds, (cfg.windows,), generator=g)
    frequency = 1 + 9 * torch.rand(kinds, cfg.channels, 1, generator=g)
    phase = 6.28 * torch.rand(cfg.windows, cfg.channels, 1, generator=g)
    time = torch.linspace(0, 1, cfg.length)
    strength = 0.5 + torch.rand(cfg.windows, 1, 1, generator=g)
    return strength * torch.sin(6.28 * frequency[kind] * time + phase), kind


def view(x):
    """Another scale for each channel, another start, and noise."""
    scale = 1 + 0.2 * torch.randn(len(x), x.shape[1], 1)
    shift = int(torch.randint(x.shape[2], ()))
    return x.roll(shift, 2) * scale + 0.1 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, channels, width=16, dim=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(channels, width, 8, 4, 2),
            nn.ReLU(inplace=True),
            nn.Conv1d(width, 2 * width, 4, 2, 1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(nn.Linear(2 * width * 8, 64), nn.ReLU(inplace=True), nn.Linear(64, dim))

    def forward(self, x):
        h = self.net(x)
        return h, self.projector(h)


class NTXent(nn.Module):
    def __init__(self, batch_size, temperature):
        super().__init__()
        self.batch_size, self.temperature = batch_size, temperature
        self.register_buffer("mask", self.correlated_mask())

    def correlated_mask(self):
        """True at negatives: neither a view itself nor the other view of the same window."""
        n = self.batch_size
        mask = torch.ones((2 * n, 2 * n), dtype=torch.bool)
        mask.fill_diagonal_(False)
        for i in range(n):
            mask[i, n + i] = False
            mask[n + i, i] = False
        return mask

    def forward(self, zi, zj):
        n = self.batch_size
        z = F.normalize(torch.cat([zi, zj]), dim=1)
        similarity = z @ z.t() / self.temperature
        positives = torch.cat([similarity.diagonal(n), similarity.diagonal(-n)])
        negatives = similarity.masked_fill(~self.mask, float("-inf"))
        return (torch.logaddexp(positives, negatives.logsumexp(1)) - positives).mean()


@torch.no_grad()
def nearest_neighbour(encoder, data, kind):
    """How often the nearest of the first 1000 windows shows the same movement."""
    h = F.normalize(encoder(data[:1000])[0], dim=1)
    similarity = (h @ h.t()).fill_diagonal_(-1)
    return (kind[similarity.argmax(1)] == kind[:1000]).float().mean().item()


def main():
    cfg = Config()
    torch.manual_seed(0)
    data, kind = movements(cfg)
    encoder, criterion = Encoder(cfg.channels), NTXent(cfg.batch_size, cfg.temperature)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=cfg.lr, fused=True)
    for epoch in range(cfg.epochs):
        total = 0.0
        batches = torch.randperm(cfg.windows).split(cfg.batch_size)
        for index in batches:
            x = data[index]
            loss = criterion(encoder(view(x))[1], encoder(view(x))[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(batches):.4f}")
    print(f"same movement next door: {nearest_neighbour(encoder, data, kind):.3f}")


if __name__ == "__main__":
    main()

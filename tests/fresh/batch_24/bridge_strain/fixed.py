"""Reconstruct the strain of bridge girders from neighbouring gauges, and score damage by the residual."""

import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class GaugeArray:
    """Simulated strain of a girder bridge while vehicles cross it."""

    def __init__(self, gauges: int, length: int, seed: int) -> None:
        self.gauges = gauges
        self.length = length
        self.rng = np.random.default_rng(seed)
        self.positions = np.linspace(0.05, 0.95, gauges)

    def crossing(self, count: int) -> np.ndarray:
        time = np.linspace(0, 1, self.length)
        speed = self.rng.uniform(0.7, 1.4, (count, 1, 1))
        load = self.rng.uniform(0.5, 2.0, (count, 1, 1))
        where = speed * time[None, None, :] - 0.1
        bump = np.exp(-(((where - self.positions[None, :, None]) / 0.08) ** 2))
        frequency = self.rng.uniform(3, 9, (count, 1, 1))
        modes = 0.2 * np.sin(2 * math.pi * frequency * time) * np.sin(math.pi * self.positions)[None, :, None]
        return load * (bump + modes) + self.rng.normal(0, 0.02, (count, self.gauges, self.length))


def load_crossings(args: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    array = GaugeArray(args.gauges, args.length, args.seed)
    strain = array.crossing(args.crossings + args.held_out)
    mean = strain.mean(axis=(0, 2), keepdims=True)
    scale = strain.std(axis=(0, 2), keepdims=True)
    strain = (strain - mean) / scale
    strain = torch.from_numpy(strain).float()
    return strain[: args.crossings], strain[args.crossings :]


class DilatedBlock(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, 2 * channels, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value, gate = self.conv(x).chunk(2, dim=1)
        return x + self.mix(torch.tanh(value) * torch.sigmoid(gate))


class StrainNet(nn.Module):
    """Fills in gauges that are masked from those that are not."""

    def __init__(self, gauges: int, channels: int, layers: int) -> None:
        super().__init__()
        self.entry = nn.Conv1d(2 * gauges, channels, 1)
        self.blocks = nn.ModuleList(DilatedBlock(channels, 2**i) for i in range(layers))
        self.out = nn.Conv1d(channels, gauges, 1)

    def forward(self, strain: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        visible = strain * mask
        hidden = self.entry(torch.cat([visible, mask.expand_as(strain)], dim=1))
        for block in self.blocks:
            hidden = block(hidden)
        return self.out(hidden)


def random_mask(batch: torch.Tensor, hidden: float, generator: torch.Generator) -> torch.Tensor:
    """Which gauges of each crossing are seen: 1 seen, 0 hidden."""
    drawn = torch.rand(batch.shape[0], batch.shape[1], 1, generator=generator)
    return (drawn > hidden).to(batch.dtype)


def masked_error(predicted: torch.Tensor, strain: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    unseen = (1 - mask).expand_as(strain)
    return (F.smooth_l1_loss(predicted, strain, reduction="none") * unseen).sum() / unseen.sum().clamp(min=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gauges", type=int, default=24)
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--crossings", type=int, default=960)
    parser.add_argument("--held-out", type=int, default=64)
    parser.add_argument("--channels", type=int, default=48)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    train, held_out = load_crossings(args)
    model = StrainNet(args.gauges, args.channels, args.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    for epoch in range(args.epochs):
        order = torch.randperm(len(train), generator=generator)
        losses = []
        for rows in order.split(args.batch_size):
            strain = train[rows]
            mask = random_mask(strain, 0.3, generator)
            loss = masked_error(model(strain, mask), strain, mask)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        with torch.inference_mode():
            mask = random_mask(held_out, 0.3, generator)
            error = masked_error(model(held_out, mask), held_out, mask)
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}, held out {error.item():.4f}")


if __name__ == "__main__":
    main()

"""Density of quasar colours with a flow of affine couplings."""

import argparse
import math

import numpy as np
import torch
from torch import nn


class Coupling(nn.Module):
    """Half of the colours scales and shifts the other half."""

    def __init__(self, colours: int, width: int, flip: bool):
        super().__init__()
        self.flip = flip
        self.half = colours // 2
        self.net = nn.Sequential(
            nn.Linear(self.half, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2 * (colours - self.half)),
        )

    def forward(self, x):
        kept, moved = x[:, : self.half], x[:, self.half :]
        if self.flip:
            kept, moved = moved, kept
        scale, shift = self.net(kept).chunk(2, dim=1)
        scale = torch.tanh(scale)
        moved = moved * scale.exp() + shift
        pair = (moved, kept) if self.flip else (kept, moved)
        return torch.cat(pair, dim=1), scale.sum(dim=1)


class ActNorm(nn.Module):
    def __init__(self, colours: int):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(colours))
        self.bias = nn.Parameter(torch.zeros(colours))

    def forward(self, x):
        return (x + self.bias) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))


class ColourFlow(nn.Module):
    def __init__(self, colours: int, width: int, depth: int):
        super().__init__()
        layers = []
        for level in range(depth):
            layers += [ActNorm(colours), Coupling(colours, width, flip=bool(level % 2))]
        self.layers = nn.ModuleList(layers)

    def log_prob(self, x):
        total = 0.0
        for layer in self.layers:
            x, change = layer(x)
            total = total + change
        normal = -0.5 * (x.square().sum(dim=1) + x.shape[1] * math.log(2 * math.pi))
        return normal + total


def quasars(count: int, colours: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    redshift = rng.gamma(2.0, 0.8, size=(count, 1))
    bands = np.linspace(0.3, 2.2, colours)
    magnitudes = np.sin(redshift * bands) + 0.3 * np.cos(3 * redshift * bands)
    return magnitudes + rng.normal(0, 0.08, size=(count, colours))


def batches(table: torch.Tensor, size: int):
    order = torch.randperm(len(table))
    for rows in order.split(size):
        if len(rows) == size:
            yield table[rows]


def train(table, width=160, depth=6, epochs=5, *, batch_size=512, lr=1e-3, dtype=torch.float32, seed=5):
    torch.manual_seed(seed)
    flow = ColourFlow(table.shape[1], width, depth).to(dtype)
    table = torch.from_numpy(table).to(dtype)
    table = (table - table.mean(dim=0)) / table.std(dim=0)
    optimizer = torch.optim.Adam(flow.parameters(), lr=lr)
    for epoch in range(epochs):
        losses = []
        for x in batches(table, batch_size):
            loss = -flow.log_prob(x).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: {torch.stack(losses).mean():.4f} nats")
    return flow


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quasars", type=int, default=36000)
    parser.add_argument("--colours", type=int, default=10)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    train(quasars(args.quasars, args.colours, args.seed), seed=args.seed)


if __name__ == "__main__":
    main()

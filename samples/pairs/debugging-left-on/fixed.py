"""Density of two moons with a normalising flow of coupling layers."""

import math

import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)


class Coupling(nn.Module):
    """One half of the numbers scales and shifts the other half."""

    def __init__(self, swap, width=64):
        super().__init__()
        self.swap = swap
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
        )

    def forward(self, x):
        kept, moved = (x[:, 1:], x[:, :1]) if self.swap else (x[:, :1], x[:, 1:])
        scale, shift = self.net(kept).chunk(2, 1)
        scale = torch.tanh(scale)
        moved = moved * scale.exp() + shift
        return torch.cat([moved, kept] if self.swap else [kept, moved], 1), scale.squeeze(1)


class Flow(nn.Module):
    def __init__(self, layers=8):
        super().__init__()
        self.layers = nn.ModuleList([Coupling(i % 2 == 1) for i in range(layers)])
        self.base = Normal(0.0, 1.0, validate_args=False)

    def log_prob(self, x):
        volume = torch.zeros(len(x))
        for layer in self.layers:
            x, change = layer(x)
            volume = volume + change
        return self.base.log_prob(x).sum(1) + volume


def moons(count):
    angle, upper = torch.rand(count) * math.pi, torch.rand(count) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return torch.stack([x, y], 1) + 0.05 * torch.randn(count, 2)


flow = Flow()
optimizer = torch.optim.Adamax(flow.parameters(), lr=2e-3)
for step in range(200):
    x = moons(256)
    loss = -flow.log_prob(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f} nats")

"""Density of galaxy colours by a coupling flow: the table stays on the device, batches are taken by index."""

import math

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
COLOURS, HALF = 16, 8


class Coupling(nn.Module):
    """Moves one half of the colours by what the other half says."""

    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(HALF, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.move = nn.Linear(width, COLOURS)
        nn.init.zeros_(self.move.weight)

    def forward(self, seen, moved):
        shift, scale = self.move(self.net(seen)).chunk(2, 1)
        scale = scale.tanh()
        return moved * scale.exp() + shift, scale.sum(1)


class Flow(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(Coupling() for _ in range(layers))

    def forward(self, x):
        """Negative log-likelihood of each galaxy."""
        first, second = x.chunk(2, 1)
        volume = 0.0
        for layer in self.layers:
            second, change = layer(first, second)
            first, second, volume = second, first, volume + change
        return 0.5 * (first.square() + second.square()).sum(1) - volume + 0.5 * COLOURS * math.log(2 * math.pi)


def galaxies(count):
    age = torch.rand(count, 1, device=device)
    slope = torch.linspace(-1, 1, COLOURS, device=device)
    return slope * age + 0.5 * (6.283 * age * slope).sin() + 0.1 * torch.randn(count, COLOURS, device=device)


colours = galaxies(120_000)
colours = (colours - colours.mean(0)) / colours.std(0)
model = Flow().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
for epoch in range(2):
    total = torch.zeros((), device=device)
    for chosen in torch.randperm(len(colours), device=device).split(1024):
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(colours[chosen]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(chosen)
    print(f"epoch {epoch}: {total.item() / len(colours):.3f}")

"""Temperatures in a rod from its heating: a branch and a trunk network, whose products give the whole field."""

import torch
import torch.nn.functional as F
from torch import nn


def rods(count, points, seed):
    """Sums of sines as heating and the stationary temperatures that follow from them."""
    g = torch.Generator().manual_seed(seed)
    x = torch.linspace(0, 1, points)
    k = torch.arange(1, 9)
    strength = torch.randn(count, 8, generator=g) / k
    waves = torch.sin(3.1416 * k[:, None] * x)
    return strength @ waves, 10 * (strength / (3.1416 * k).square()) @ waves, x[:, None]


def mlp(*sizes):
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.GELU())]
    return nn.Sequential(*layers[:-1])


class DeepONet(nn.Module):
    def __init__(self, points, width=256, modes=128):
        super().__init__()
        self.branch = mlp(points, width, width, modes)
        self.trunk = mlp(1, width, width, modes)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, heating, x):
        return self.branch(heating) @ self.trunk(x).t() + self.bias


def main(count=12_800, points=128, batch=256, epochs=12):
    torch.manual_seed(0)
    heating, temperature, x = rods(count + 512, points, seed=7)
    model = DeepONet(points)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.85)
    for epoch in range(epochs):
        for index in torch.randperm(count).split(batch):
            loss = F.mse_loss(model(heating[index], x), temperature[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        with torch.inference_mode():
            error = F.mse_loss(model(heating[count:], x), temperature[count:]).sqrt()
        print(f"epoch {epoch}: held-out error {error.item():.5f}")


if __name__ == "__main__":
    main()

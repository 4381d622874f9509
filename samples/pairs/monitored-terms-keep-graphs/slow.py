"""A variational autoencoder of cell measurements; how far its codes are from the prior is watched beside the loss."""

from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Settings:
    markers: int = 40
    width: int = 256
    code: int = 8
    batch: int = 384
    epochs: int = 3
    beta: float = 0.05


class Autoencoder(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Linear(s.markers, s.width),
            nn.SiLU(),
            nn.Linear(s.width, s.width),
            nn.SiLU(),
            nn.Linear(s.width, 2 * s.code),
        )
        self.decode = nn.Sequential(
            nn.Linear(s.code, s.width), nn.SiLU(), nn.Linear(s.width, s.width), nn.SiLU(), nn.Linear(s.width, s.markers)
        )

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            mean, spread = self.encode(x).float().chunk(2, dim=1)
            z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
            again = self.decode(z).float()
        return {"again": again, "mean": mean, "spread": spread, "z": z}


def kernel(a, b):
    """Mean of three Gaussian kernels of different width, between all codes of two sets."""
    squares = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp(min=0)
    return sum(torch.exp(-squares / (2 * a.shape[1] * scale)) for scale in (0.5, 1.0, 2.0)).mean() / 3


def discrepancy(z):
    """Maximum mean discrepancy between codes and draws from the prior."""
    prior = torch.randn_like(z)
    return kernel(z, z) + kernel(prior, prior) - 2 * kernel(z, prior)


def terms(out, x, s):
    again = F.mse_loss(out["again"], x, reduction="none").sum(1).mean()
    divergence = 0.5 * (out["mean"].square() + out["spread"].exp() - 1 - out["spread"]).sum(1).mean()
    return {
        "loss": again + s.beta * divergence,
        "again": again,
        "divergence": divergence,
        "discrepancy": discrepancy(out["z"]),
    }


class Meter:
    """Collects the terms of each step until they are read."""

    def __init__(self):
        self.values = defaultdict(list)

    def update(self, **values):
        for name, value in values.items():
            self.values[name].append(value)

    def read(self):
        means = {name: torch.stack(values).mean().item() for name, values in self.values.items()}
        self.values.clear()
        return means


def main(s):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cells = (torch.randn(15_360, 6) @ torch.randn(6, s.markers)).tanh().to(device)
    model = Autoencoder(s).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    meter = Meter()
    for epoch in range(s.epochs):
        for rows in torch.randperm(len(cells), device=device).split(s.batch):
            x = cells[rows]
            losses = terms(model(x), x, s)
            optimizer.zero_grad()
            losses["loss"].backward()
            optimizer.step()
            meter.update(**losses)
        print(f"epoch {epoch}: " + ", ".join(f"{name} {mean:.3f}" for name, mean in meter.read().items()))


if __name__ == "__main__":
    main(Settings())

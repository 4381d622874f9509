"""Remaining life of turbines from 24 gauges: readings are scaled by the statistics of the training set."""

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
GAUGES, CYCLES = 24, 40


class Turbines:
    """Recordings of all engines, and batches of them at random."""

    def __init__(self, count):
        wear = torch.rand(count, 1, 1, device=device)
        drift = wear * torch.linspace(0, 3, CYCLES, device=device)[:, None] * torch.randn(GAUGES, device=device)
        level, spread = 500 * torch.rand(GAUGES, device=device), 1 + 10 * torch.rand(GAUGES, device=device)
        self.readings = level + spread * (drift + torch.randn(count, CYCLES, GAUGES, device=device))
        self.life = (1 - wear).flatten() * 125
        self.mean, self.std = self.readings.mean(dim=(0, 1)), self.readings.std(dim=(0, 1))

    def scaled(self, readings):
        """Zero mean and unit spread for each gauge."""
        return (readings - self.mean) / (self.std + 1e-8)

    def batches(self, size):
        for chosen in torch.randperm(len(self.life), device=device).split(size):
            yield self.scaled(self.readings[chosen]), self.life[chosen]


class LifeNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv1d(GAUGES, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, width, 5, 2, 2), nn.ReLU()
        )
        self.head = nn.Linear(width * CYCLES // 2, 1)

    def forward(self, x):
        return 125 * self.head(self.convolutions(x.transpose(1, 2)).flatten(1)).squeeze(1)


turbines = Turbines(1500)
model = LifeNet().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for epoch in range(8):
    error = torch.zeros((), device=device)
    for readings, life in turbines.batches(50):
        loss = nn.functional.huber_loss(model(readings), life, delta=10.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error += loss.detach()
    print(f"epoch {epoch}: {error.item() / 30:.3f}")

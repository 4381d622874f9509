"""Energy of collision events from 30 measured numbers: everything is in memory, batches come from a loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def events(count):
    """Thirty numbers of each event, a weight, and the energy that is to be found again."""
    energy = torch.rand(count, 1)
    measured = energy * torch.randn(30) + 0.3 * torch.randn(count, 30)
    return measured, torch.rand(count), energy


class Regressor(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(30, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x)


def fit(model, data, size, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loader = DataLoader(data, batch_size=size, shuffle=True)
    for epoch in range(epochs):
        total = 0.0
        for measured, weight, energy in loader:
            error = (model(measured) - energy).square().squeeze(1)
            loss = (weight * error).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(loader):.5f}")


if __name__ == "__main__":
    fit(Regressor(), TensorDataset(*events(102_400)), size=512, epochs=2)

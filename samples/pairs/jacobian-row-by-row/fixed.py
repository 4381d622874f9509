"""A contractive autoencoder of chemical sensors: the Jacobian of the code, as a penalty, keeps drift out of it."""

import torch
from torch import nn
from torch.autograd.functional import jacobian

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
SENSORS, HIDDEN, CODE = 48, 96, 32


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(SENSORS, HIDDEN), nn.Softplus(), nn.Linear(HIDDEN, CODE), nn.Tanh())
        self.decoder = nn.Sequential(nn.Linear(CODE, HIDDEN), nn.Softplus(), nn.Linear(HIDDEN, SENSORS))

    def contraction(self, x):
        """Mean squared norm of the derivatives of the code by the sensors."""
        # Samples do not see each other: the derivatives of the sum over the batch are those of each sample.
        rows = jacobian(lambda batch: self.encoder(batch).sum(0), x, create_graph=True, vectorize=True)
        return rows.square().sum((0, 2)).mean()

    def forward(self, x):
        return self.decoder(self.encoder(x))


def readings(count):
    """Six gases, each seen by many sensors, with saturation and noise."""
    amounts, answer = torch.rand(count, 6, device=device), torch.randn(6, SENSORS, device=device)
    return (amounts @ answer).tanh() + 0.05 * torch.randn(count, SENSORS, device=device)


def batches(table, size, epochs):
    for _ in range(epochs):
        yield from (table[rows] for rows in torch.randperm(len(table), device=device).split(size))


model = Autoencoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for step, x in enumerate(batches(readings(3200), 32, 3)):
    restored = nn.functional.mse_loss(model(x), x)
    penalty = model.contraction(x)
    optimizer.zero_grad()
    (restored + 0.01 * penalty).backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: restored {restored.item():.4f}, contraction {penalty.item():.4f}")

"""Keeps a moving average of the weights, as diffusion models do."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(6400, 64)
loader = DataLoader(TensorDataset(x), batch_size=32, shuffle=True)

layers = []
for _ in range(24):
    layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.SiLU()]
model = nn.Sequential(*layers).to(device)
averaged = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step, (clean,) in enumerate(loader):
    clean = clean.to(device)
    noise = torch.randn_like(clean)
    loss = nn.functional.mse_loss(model(clean + noise), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    with torch.no_grad():
        for average, current in zip(averaged.parameters(), model.parameters(), strict=True):
            average.copy_(0.999 * average + 0.001 * current)

    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

"""An autoencoder of handwritten-digit-like pictures."""

from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

digits = torch.rand(20_000, 784)
batch_size = 32
loader = DataLoader(TensorDataset(digits), batch_size=batch_size, shuffle=True)

layers = []
sizes = [784, 256, 128, 64, 32, 16, 32, 64, 128, 256, 784]
for inner, outer in pairwise(sizes):
    layers += [nn.Linear(inner, outer), nn.LayerNorm(outer), nn.GELU()]
model = nn.Sequential(*layers[:-2], nn.Sigmoid()).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

for step, (pictures,) in enumerate(loader):
    pictures = pictures.to(device)
    loss = nn.functional.mse_loss(model(pictures), pictures)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
    if step == 400:
        break

"""A diffusion-like model; noise and masks are made on the host."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

loader = DataLoader(TensorDataset(torch.randn(1600, 3, 32, 32)), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 3, 3, padding=1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

for step, (clean,) in enumerate(loader):
    clean = clean.to(device)
    noise = torch.randn(clean.shape).to(device)
    mask = torch.ones(clean.shape).to(device)
    level = torch.rand(len(clean), 1, 1, 1).to(device)
    loss = ((model(clean * (1 - level) + noise * level) - noise) ** 2 * mask).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

"""Trains with a clean-up of the device's memory after each step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(3200, 256)
loader = DataLoader(TensorDataset(x, x.sort(1).values), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(
    device
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

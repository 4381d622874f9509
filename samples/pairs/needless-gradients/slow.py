"""Trains a new head on the features of a network that stays as it is."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(3200, 3, 16, 16)
y = x.mean((2, 3)).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)

layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
for _ in range(3):
    layers += [nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten()).to(device)
head = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
optimizer = torch.optim.Adam(head.parameters(), lr=1e-3, fused=True)

for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.cross_entropy(head(backbone(inputs.to(device))), targets.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: loss {loss.item():.3f}")

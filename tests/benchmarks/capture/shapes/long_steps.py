"""Steps of 2 s: wide layers on a CPU."""

import torch
from torch import nn

STEPS = 20

model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1024))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(STEPS):
    batch = torch.randn(512, 1024)
    for _ in range(2):
        loss = (model(batch) - batch).pow(2).mean() / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()

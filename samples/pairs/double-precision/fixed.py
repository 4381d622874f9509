"""Learns to predict the next value of noisy oscillations."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

time = torch.arange(600) * 0.1
phases = torch.rand(1600, 1) * 6
signals = torch.sin(time[:400] + phases) + 0.1 * torch.randn(1600, 400)
loader = DataLoader(TensorDataset(signals[:, :-1], signals[:, -1:]), batch_size=16, shuffle=True)

model = nn.Sequential(nn.Linear(399, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(2):
    for history, following in loader:
        loss = nn.functional.mse_loss(model(history.to(device)), following.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")

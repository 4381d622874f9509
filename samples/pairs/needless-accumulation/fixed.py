"""Trains on batches of 64."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

x = torch.randn(6400, 1, 28, 28)
y = torch.randint(0, 10, (6400,))
batch_size, accumulation = 64, 1
loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(576, 10)
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step, (pictures, digits) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(pictures.to(device)), digits.to(device)) / accumulation
    loss.backward()
    if (step + 1) % accumulation == 0:
        optimizer.step()
        optimizer.zero_grad()

print(f"loss {loss.item() * accumulation:.3f}")

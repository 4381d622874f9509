"""Regression on sensor readings: 1,200 numbers in, one number out."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
random.seed(0)


class Readings(Dataset):
    def __init__(self, count=1500, width=1200):
        self.rows = [[random.random() for _ in range(width)] for _ in range(count)]
        self.targets = [sum(row) / width for row in self.rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.tensor(self.rows[index]), torch.tensor(self.targets[index])


loader = DataLoader(Readings(), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(1200, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(8):
    for rows, targets in loader:
        rows, targets = rows.to(device), targets.to(device)
        loss = nn.functional.mse_loss(model(rows).squeeze(1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}")

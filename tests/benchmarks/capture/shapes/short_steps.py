"""Steps of 3 ms: a small perceptron on a table."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 1500

model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(128 * STEPS // 5, 64), torch.randint(0, 10, (128 * STEPS // 5,)))
for _ in range(5):
    for features, labels in DataLoader(data, batch_size=128, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()

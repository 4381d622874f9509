"""Short epochs, each followed by an evaluation that is longer than the training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCHES = 12, 20

model = nn.Sequential(
    nn.Linear(784, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(
    TensorDataset(torch.randn(64 * BATCHES, 784), torch.randint(0, 10, (64 * BATCHES,))), batch_size=64, shuffle=True
)
test = DataLoader(TensorDataset(torch.randn(64 * 80, 784), torch.randint(0, 10, (64 * 80,))), batch_size=64)
for _ in range(EPOCHS):
    model.train()
    for features, labels in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for features, labels in test:
            right += (model(features).argmax(1) == labels).sum().item()

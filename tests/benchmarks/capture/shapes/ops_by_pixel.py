"""Steps of 150,000 ops: a loss that sums over the pixels of an image one at a time."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, SIDE, STEPS = 4, 96, 30

model = nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(BATCH * STEPS, 1, SIDE, SIDE), torch.randn(BATCH * STEPS, 1, SIDE, SIDE))


def weighted(image, wanted):
    total = torch.zeros(())
    for y in range(0, SIDE):
        for x in range(0, SIDE):
            difference = image[:, 0, y, x] - wanted[:, 0, y, x]
            total = total + (difference * difference).mean() * (1 + x / SIDE)
    return total / SIDE**2


for image, wanted in DataLoader(data, batch_size=BATCH):
    optimizer.zero_grad()
    weighted(model(image), wanted).backward()
    optimizer.step()

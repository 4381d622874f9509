"""A convolutional network with batch normalisation on small images."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, STEPS = 64, 60


def block(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2))


model = nn.Sequential(block(3, 32), block(32, 64), block(64, 128), nn.Flatten(), nn.Linear(128 * 16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images = TensorDataset(torch.randn(BATCH * STEPS // 2, 3, 32, 32), torch.randint(0, 10, (BATCH * STEPS // 2,)))
running = 0.0
for _ in range(2):
    for batch, labels in DataLoader(images, batch_size=BATCH, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        running += loss.item()

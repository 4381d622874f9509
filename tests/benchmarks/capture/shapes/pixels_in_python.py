"""A dataset that changes its images pixel by pixel in plain Python: lines, and hardly an op."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, STEPS, SIDE = 32, 60, 48


class Noisy(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, index):
        image = []
        for y in range(SIDE):
            row = []
            for x in range(SIDE):
                value = (x * y + index) % 255 / 255
                if random.random() < 0.1:
                    value = 1.0 - value
                row.append(value)
            image.append(row)
        return torch.tensor(image), index % 10


model = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for images, labels in DataLoader(Noisy(), batch_size=BATCH):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()

"""Curriculum learning: easy pictures first, harder ones epoch by epoch, augmented by worker processes."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Curriculum(Dataset):
    """Pictures with noise that grows with the level; the level is shared with the workers."""

    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.labels = rng.integers(0, 8, count)
        self.pictures = rng.random((8, 1, 24, 24), dtype=np.float32)[self.labels]
        self.level = torch.zeros(1).share_memory_()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        noise = np.random.standard_normal((1, 24, 24)).astype(np.float32)
        picture = np.roll(self.pictures[index], np.random.randint(-3, 4), axis=2) + float(self.level) * noise
        return picture, self.labels[index]


model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 8),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
dataset = Curriculum(480)


def make_loader():
    return DataLoader(dataset, batch_size=48, shuffle=True, num_workers=1)


for epoch in range(16):
    dataset.level.fill_(epoch / 16)
    loader = make_loader()
    correct = 0
    for pictures, labels in loader:
        scores = model(pictures)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += int((scores.argmax(1) == labels).sum())
    print(f"level {epoch / 16:.2f}: accuracy {correct / len(dataset):.3f}")

"""Counts cells in microscope pictures: samples are dictionaries, and augmentation must not change the originals."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)
SIDE, GRID = 64, 8


def specimen():
    """A picture, where its cells are, and the notes of those who marked them."""
    cells = [(random.uniform(4, 60), random.uniform(4, 60)) for _ in range(random.randint(5, 25))]
    axis = torch.arange(SIDE)
    picture = 0.1 * torch.randn(1, SIDE, SIDE)
    for x, y in cells:
        picture += torch.exp(-((axis - x).square() + (axis[:, None] - y).square()) / 8)
    marks = [
        {"cell": [x, y], "marked_by": i % 3, "checked": [True, False, i % 2 == 0]} for i, (x, y) in enumerate(cells)
    ]
    return {"picture": picture, "marks": marks, "slide": {"stain": "H&E", "zoom": 40, "history": list(range(40))}}


class Specimens(Dataset):
    def __init__(self, count):
        self.samples = [specimen() for _ in range(count)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        sample = self.samples[index]
        picture, points = sample["picture"], [mark["cell"] for mark in sample["marks"]]
        if random.random() < 0.5:
            picture = picture.flip(2)
            points = [[SIDE - 1 - x, y] for x, y in points]
        places = torch.tensor(points).mul(GRID / SIDE).long()
        cells = (places[:, 1] * GRID + places[:, 0]).clamp(0, GRID * GRID - 1)
        return picture, torch.bincount(cells, minlength=GRID * GRID).view(GRID, GRID).float()


def train(loader, epochs):
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 1, 3, 2, 1)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    for epoch in range(epochs):
        for pictures, counts in loader:
            loss = nn.functional.poisson_nll_loss(net(pictures).squeeze(1), counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


train(DataLoader(Specimens(800), batch_size=8, shuffle=True), 3)

"""Segmentation of street scenes: masks come as colours and are turned into classes by the dataset."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
PALETTE = np.array([[i * 67 % 256, i * 131 % 256, i * 29 % 256] for i in range(19)], dtype=np.uint8)


def classes_of(mask):
    out = np.zeros(mask.shape[:2], dtype=np.int64)
    for index, colour in enumerate(PALETTE):
        out[(mask == colour).all(axis=-1)] = index
    return out


class Streets(Dataset):
    def __init__(self, count=96, size=96):
        rng = np.random.default_rng(0)
        coarse = rng.integers(0, len(PALETTE), (count, size // 8, size // 8))
        self.masks = PALETTE[coarse.repeat(8, 1).repeat(8, 2)]
        self.pictures = (self.masks * 0.5 + rng.integers(0, 128, self.masks.shape)).astype(np.uint8)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index]).permute(2, 0, 1).float() / 255
        return picture, torch.from_numpy(classes_of(self.masks[index]))


class SmallUNet(nn.Module):
    def __init__(self, width=24, classes=19):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU())
        self.down2 = nn.Sequential(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, classes, 1)

    def forward(self, x):
        half = self.down1(x)
        x = self.out(torch.cat([half, self.up(self.down2(half))], 1))
        return nn.functional.interpolate(x, scale_factor=2)


def train(epochs=10):
    loader = DataLoader(Streets(), batch_size=8, shuffle=True, drop_last=True)
    model = SmallUNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, epochs * len(loader), power=0.9)
    for epoch in range(epochs):
        for picture, mask in loader:
            loss = nn.functional.cross_entropy(model(picture), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


train()

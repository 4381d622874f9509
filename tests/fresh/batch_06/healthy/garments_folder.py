"""Garments in folders of small JPEG files, read by workers that live through all epochs."""

import os
import tempfile

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.transforms import v2

NAMES = ["bag", "boot", "coat", "dress", "shirt"]


def photograph(root, each, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[-1:1:96j, -1:1:96j]
    for kind, name in enumerate(NAMES):
        os.makedirs(os.path.join(root, name))
        for i in range(each):
            shape = (
                np.abs(xx) ** (1 + kind) / rng.uniform(0.3, 0.6) + np.abs(yy) ** (5 - kind) / rng.uniform(0.4, 0.8) < 1
            )
            photo = rng.normal(225, 8, (96, 96, 3))
            photo[shape] = rng.uniform(20, 200, 3) + rng.normal(0, 10, (int(shape.sum()), 1))
            Image.fromarray(photo.clip(0, 255).astype(np.uint8)).save(os.path.join(root, name, f"{i:04d}.jpg"))


class Bottleneck(nn.Module):
    def __init__(self, channels):
        super().__init__()
        inner = channels // 2
        self.layers = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, padding=1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(inplace=True),
            nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.layers(x))


def make_model(width=64):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        Bottleneck(width), Bottleneck(width), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(inplace=True),
        Bottleneck(2 * width), Bottleneck(2 * width), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(2 * width, len(NAMES)),
    )  # fmt: skip


def main():
    torch.manual_seed(30)
    transform = v2.Compose(
        [v2.RandomCrop(88), v2.RandomHorizontalFlip(), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    )
    with tempfile.TemporaryDirectory() as root:
        photograph(root, each=160, seed=30)
        loader = DataLoader(
            datasets.ImageFolder(root, transform),
            batch_size=32,
            shuffle=True,
            drop_last=True,
            num_workers=1,
            persistent_workers=True,
            prefetch_factor=4,
        )
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, fused=True)
        criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        for epoch in range(6):
            total, right = torch.zeros(()), torch.zeros((), dtype=torch.long)
            for images, labels in loader:
                logits = model(images)
                loss = criterion(logits, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
                right += (logits.detach().argmax(dim=1) == labels).sum()
            print(f"epoch {epoch}: loss {total.item() / len(loader):.4f} right {right.item() / len(loader) / 32:.3f}")


if __name__ == "__main__":
    main()

"""Tumour or healthy: patches of stained tissue, brought to the colours of a reference slide, and a small DenseNet."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

REFERENCE_STAINS = np.array([[0.5626, 0.2159], [0.7201, 0.8012], [0.4062, 0.5581]], dtype=np.float32)
REFERENCE_MAXIMA = np.array([1.9705, 1.0308], dtype=np.float32)


def write_patches(root, count, size, seed):
    """Patches with nuclei in one stain and tissue in the other; each slide has its own shades."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size]
    rows = []
    for i in range(count):
        label = int(rng.integers(2))
        tissue = 0.5 + 0.2 * np.sin(xx / rng.uniform(4, 9) + yy / rng.uniform(4, 9))
        nuclei = np.zeros((size, size))
        for y, x in rng.integers(4, size - 4, (6 + 8 * label, 2)):
            nuclei += 1.2 * np.exp(-((yy - y) ** 2 + (xx - x) ** 2) / (8 + 4 * label))
        density = np.stack([nuclei, tissue], -1) + rng.normal(0, 0.03, (size, size, 2))
        stains = REFERENCE_STAINS + rng.normal(0, 0.06, (3, 2))
        Image.fromarray((240 * np.exp(-density.clip(0) @ stains.T)).clip(0, 255).astype(np.uint8)).save(
            root / f"patch_{i:05d}.png"
        )
        rows.append({"file": f"patch_{i:05d}.png", "tumour": label})
    pd.DataFrame(rows).to_csv(root / "labels.csv", index=False)


class MacenkoNormalizer:
    """Finds the two stains of a patch and paints it in those of the reference."""

    def __init__(self, light=240, beta=0.15, alpha=1):
        self.light, self.beta, self.alpha = light, beta, alpha

    def __call__(self, image):
        density = -np.log((image.reshape(-1, 3).astype(np.float32) + 1) / self.light)
        opaque = density[(density >= self.beta).all(axis=1)]
        _, vectors = np.linalg.eigh(np.cov(opaque.T))
        plane = opaque @ vectors[:, 1:3]
        angles = np.arctan2(plane[:, 1], plane[:, 0])
        low, high = np.percentile(angles, [self.alpha, 100 - self.alpha])
        ends = vectors[:, 1:3] @ np.array([[np.cos(low), np.cos(high)], [np.sin(low), np.sin(high)]])
        stains = ends[:, ::-1] if ends[0, 0] < ends[0, 1] else ends
        amounts = np.linalg.pinv(stains) @ density.T
        amounts *= (REFERENCE_MAXIMA / np.percentile(amounts, 99, axis=1))[:, None]
        painted = self.light * np.exp(-REFERENCE_STAINS @ amounts)
        return painted.T.reshape(image.shape).clip(0, 255).astype(np.uint8)


class PatchDataset(Dataset):
    def __init__(self, root, normalizer, transform):
        self.table = pd.read_csv(root / "labels.csv")
        self.labels = self.table["tumour"].to_numpy()
        self.images = [np.asarray(Image.open(root / name)) for name in self.table["file"]]
        self.normalizer, self.transform = normalizer, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.normalizer(self.images[i])), self.labels[i]


class DenseNet(nn.Module):
    def __init__(self, growth=16, layers=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(2))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(32 + i * growth, growth, 3, 1, 1, bias=False), nn.BatchNorm2d(growth), nn.ReLU())
            for i in range(layers)
        )
        self.head = nn.Linear(32 + layers * growth, 2)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], dim=1)
        return self.head(x.mean((2, 3)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patches", type=int, default=640)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    augment = transforms.Compose(
        [
            transforms.ToPILImage(),
            transforms.RandomHorizontalFlip(),
            transforms.RandomVerticalFlip(),
            transforms.ToTensor(),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_patches(root, args.patches, args.size, seed=4)
        dataset = PatchDataset(root, MacenkoNormalizer(), augment)
        loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True)
        model = DenseNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for epoch in range(args.epochs):
            total = 0.0
            for images, labels in loader:
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()

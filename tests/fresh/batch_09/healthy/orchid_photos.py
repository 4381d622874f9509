"""Orchids from large photographs: one worker decodes and crops while the main process trains with the other core."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

GENERA = ["cattleya", "dendrobium", "phalaenopsis", "vanda"]


def photograph(root, per_genus, seed):
    """Petals around a centre; genera differ in how many there are and in colour."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:240, 0:320]
    for number, genus in enumerate(GENERA):
        (root / genus).mkdir(parents=True)
        for i in range(per_genus):
            cy, cx = rng.uniform(90, 150), rng.uniform(120, 200)
            angle = np.arctan2(yy - cy, xx - cx)
            edge = rng.uniform(55, 80) * (0.6 + 0.4 * np.abs(np.cos((3 + number) / 2 * angle)))
            photo = np.array([60, 100, 60]) + rng.normal(0, 10, (240, 320, 1))
            photo[np.hypot(yy - cy, xx - cx) < edge] = rng.normal([200, 90 + 30 * number, 210 - 20 * number], 8)
            noisy = photo + rng.normal(0, 5, photo.shape)
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(root / genus / f"{i}.jpg", quality=90)


class Orchids(Dataset):
    def __init__(self, root, transform):
        self.files = [(str(path), number) for number, g in enumerate(GENERA) for path in sorted((root / g).iterdir())]
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        path, number = self.files[i]
        with Image.open(path) as image:
            return self.transform(image), number


class Normalized(nn.Module):
    """Bytes to numbers around zero, for the whole batch at once."""

    def forward(self, x):
        return x.to(torch.float32).sub_(110).div_(60)


def network():
    return nn.Sequential(
        Normalized(),
        nn.Conv2d(3, 24, 5, 2, 2),
        nn.ReLU(inplace=True),
        nn.Conv2d(24, 48, 3, 2, 1),
        nn.ReLU(inplace=True),
        nn.Conv2d(48, 96, 3, 2, 1),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(96, len(GENERA)),
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per-genus", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    transform = transforms.Compose(
        [transforms.RandomResizedCrop(144, scale=(0.5, 1)), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    )
    with tempfile.TemporaryDirectory() as folder:
        photograph(Path(folder), args.per_genus, seed=50)
        loader = DataLoader(
            Orchids(Path(folder), transform), args.batch_size, shuffle=True, drop_last=True, num_workers=1,
            persistent_workers=True, prefetch_factor=4,
        )  # fmt: skip
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for images, genus in loader:
                loss = nn.functional.cross_entropy(model(images), genus)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

"""Tell occupied from empty burrows on photos of trail cameras."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import pil_to_tensor


@dataclass
class Config:
    photos: int = 240
    photo_size: tuple[int, int] = (400, 300)
    side: int = 64
    batch_size: int = 16
    epochs: int = 12
    lr: float = 2e-3
    channels: tuple[int, ...] = (16, 32, 64)
    seed: int = 31


def write_photos(folder: Path, config: Config) -> list[tuple[Path, int]]:
    """A grey slope with a dark hole; in half of them something bright sits in front of it."""
    rng = np.random.default_rng(config.seed)
    width, height = config.photo_size
    rows, columns = np.mgrid[:height, :width]
    labelled = []
    for number in range(config.photos):
        label = number % 2
        x, y = rng.integers(60, width - 60), rng.integers(60, height - 60)
        photo = rng.normal(120, 25, (height, width, 3))
        photo[(rows - y) ** 2 + (columns - x) ** 2 < 45**2] *= 0.3
        if label:
            photo[(rows - y - 10) ** 2 + (columns - x) ** 2 < 18**2] = (230, 220, 210)
        path = folder / f"camera_{number:04d}.jpg"
        Image.fromarray(photo.clip(0, 255).astype(np.uint8)).save(path, quality=90)
        labelled.append((path, label))
    return labelled


class BurrowPhotos(Dataset):
    def __init__(self, labelled: list[tuple[Path, int]], side: int) -> None:
        self.labelled = labelled
        self.side = side
        self.mean = torch.tensor([0.45, 0.45, 0.45]).view(3, 1, 1)
        self.std = torch.tensor([0.2, 0.2, 0.2]).view(3, 1, 1)
        self.images = [self.load(path) for path, _ in labelled]

    def load(self, path: Path) -> Tensor:
        with Image.open(path) as photo:
            small = photo.convert("RGB").resize((self.side, self.side), Image.Resampling.BILINEAR)
        return pil_to_tensor(small).float().div_(255).sub_(self.mean).div_(self.std)

    def __len__(self) -> int:
        return len(self.labelled)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        _, label = self.labelled[index]
        image = self.images[index]
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        return image, label


class Stage(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norms[0](self.first(x)))
        x = x + torch.relu(self.norms[1](self.second(x)))
        return self.pool(x)


class BurrowNet(nn.Module):
    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        widths = (3, *channels)
        self.stages = nn.Sequential(*(Stage(a, b) for a, b in zip(widths, widths[1:], strict=False)))
        self.head = nn.Linear(channels[-1], 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.stages(images).mean(dim=(2, 3)))


def run_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> tuple[float, float]:
    loss_sum, hits, seen = torch.zeros(()), torch.zeros(()), 0
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for images, labels in loader:
        logits = model(images)
        loss = criterion(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach() * len(labels)
        hits += (logits.detach().argmax(1) == labels).sum()
        seen += len(labels)
    return loss_sum.item() / seen, hits.item() / seen


def main(config: Config) -> None:
    torch.manual_seed(config.seed)
    with tempfile.TemporaryDirectory() as folder:
        photos = BurrowPhotos(write_photos(Path(folder), config), config.side)
        loader = DataLoader(photos, batch_size=config.batch_size, shuffle=True, drop_last=True)
        model = BurrowNet(config.channels)
        optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9, nesterov=True, fused=True)
        for epoch in range(config.epochs):
            loss, accuracy = run_epoch(model, loader, optimizer)
            if epoch % 4 == 3:
                print(f"epoch {epoch + 1:2d}  loss {loss:.4f}  accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main(Config())

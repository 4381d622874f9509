"""Mangroves, water and mud on aerial tiles: a pyramid of features, fused at a quarter of the size."""

import argparse
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

CLASSES = ("water", "mud", "mangrove", "sand", "roof", "road")
COLOURS = torch.tensor(
    [[0.1, 0.3, 0.5], [0.4, 0.3, 0.2], [0.1, 0.4, 0.15], [0.8, 0.7, 0.5], [0.6, 0.2, 0.2], [0.4, 0.4, 0.4]]
)


def synthetic_tiles(count: int, size: int, seed: int) -> TensorDataset:
    """Smooth random fields compete for each pixel, the highest one gives its class."""
    generator = torch.Generator().manual_seed(seed)
    fields = torch.randn(count, len(CLASSES), size // 16, size // 16, generator=generator)
    fields = F.interpolate(fields, size=(size, size), mode="bicubic", align_corners=False)
    masks = fields.argmax(1)
    images = COLOURS[masks].permute(0, 3, 1, 2) + 0.15 * torch.randn(count, 3, size, size, generator=generator)
    return TensorDataset(images.contiguous(), masks)


class ConvNormAct(nn.Sequential):
    def __init__(self, inner: int, outer: int, stride: int = 1):
        super().__init__(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(inplace=True),
        )


class Encoder(nn.Module):
    def __init__(self, widths: tuple[int, ...]):
        super().__init__()
        self.stem = ConvNormAct(3, widths[0], 2)
        self.stages = nn.ModuleList(
            nn.Sequential(ConvNormAct(inner, outer, 2), ConvNormAct(outer, outer))
            for inner, outer in zip(widths, widths[1:], strict=False)
        )

    def forward(self, image: torch.Tensor) -> list[torch.Tensor]:
        features, x = [], self.stem(image)
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class FusionHead(nn.Module):
    """Brings all levels to the size of the finest and classifies each pixel of the sum."""

    def __init__(self, widths: tuple[int, ...], width: int, classes: int):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(level, width, 1) for level in widths)
        self.fuse = ConvNormAct(width, width)
        self.dropout = nn.Dropout2d(0.1)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, features: list[torch.Tensor], size: torch.Size) -> torch.Tensor:
        finest = features[0].shape[-2:]
        total = self.lateral[0](features[0])
        for lateral, level in zip(self.lateral[1:], features[1:], strict=True):
            total = total + F.interpolate(lateral(level), size=finest, mode="bilinear", align_corners=False)
        fused = self.dropout(self.fuse(total))
        fused = F.interpolate(fused, size=size, mode="bilinear", align_corners=False)
        return self.classifier(fused)


class PyramidNet(nn.Module):
    def __init__(self, widths: tuple[int, ...], head: int):
        super().__init__()
        self.encoder = Encoder(widths)
        self.head = FusionHead(widths[1:], head, len(CLASSES))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(image), image.shape[-2:])


@torch.no_grad()
def intersection_over_union(model: nn.Module, loader: DataLoader) -> torch.Tensor:
    model.eval()
    classes = len(CLASSES)
    counts = torch.zeros(classes * classes, dtype=torch.long)
    for images, masks in loader:
        cells = masks * classes + model(images).argmax(1)
        counts += torch.bincount(cells.flatten(), minlength=classes * classes)
    counts = counts.view(classes, classes)
    overlap = counts.diagonal()
    return overlap / (counts.sum(0) + counts.sum(1) - overlap).clamp(min=1)


def train(args: argparse.Namespace, folder: str) -> None:
    tiles = synthetic_tiles(args.tiles, args.size, args.seed)
    held_out = len(tiles) // 10
    train_set, test_set = random_split(tiles, [len(tiles) - held_out, held_out])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)
    model = PyramidNet((16, 24, 48, 64), args.head)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    total_steps = args.epochs * len(train_loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 - step / (total_steps + 1)) ** 0.9)

    best = 0.0
    for epoch in range(args.epochs):
        model.train()
        losses = []
        for images, masks in train_loader:
            loss = F.cross_entropy(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        score = intersection_over_union(model, test_loader).mean().item()
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.3f}, mean IoU {score:.3f}")
        if score > best:
            best = score
            torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(folder, "best.pt"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=200)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--head", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=14)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        train(args, folder)


if __name__ == "__main__":
    main()

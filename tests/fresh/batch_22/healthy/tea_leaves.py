"""Diseases of tea leaves from small photographs: a residual network, channels last, augmented a batch at a time."""

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn


class LeafPhotos:
    """Photographs are kept as bytes and turned into numbers batch by batch."""

    def __init__(self, count: int, size: int, seed: int, diseases: int):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, diseases, (count,), generator=generator)
        shades = torch.rand(diseases, 3, 1, 1, generator=torch.Generator().manual_seed(4))
        spots = torch.rand(count, 1, size // 4, size // 4, generator=generator)
        spots = F.interpolate((spots > 0.85 - 0.03 * self.labels.view(-1, 1, 1, 1)).float(), scale_factor=4)
        photos = shades[self.labels] * 150 + 60 * spots + 25 * torch.randn(count, 3, size, size, generator=generator)
        self.photos = photos.clamp(0, 255).to(torch.uint8)

    def batches(self, size: int, generator: torch.Generator | None = None) -> Iterator[tuple]:
        shuffled = generator is not None
        order = torch.randperm(len(self.labels), generator=generator) if shuffled else torch.arange(len(self.labels))
        for rows in order.split(size):
            photos = self.photos[rows].float().div_(127.5).sub_(1)
            if shuffled:
                mirrored = torch.rand(len(rows), generator=generator) < 0.5
                photos = torch.where(mirrored[:, None, None, None], photos.flip(-1), photos)
            yield photos.contiguous(memory_format=torch.channels_last), self.labels[rows]


class Residual(nn.Module):
    def __init__(self, before: int, after: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.skip = nn.Conv2d(before, after, 1, stride=stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        hidden = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(hidden)) + self.skip(x), inplace=True)


class LeafNet(nn.Module):
    def __init__(self, width: int, diseases: int):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.stages = nn.Sequential(
            Residual(width, width, 1),
            Residual(width, 2 * width, 2),
            Residual(2 * width, 2 * width, 1),
            Residual(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, diseases)

    def forward(self, photos):
        return self.head(self.stages(self.stem(photos)).mean(dim=(2, 3)))


@torch.inference_mode()
def accuracy(model: nn.Module, photos: LeafPhotos) -> float:
    model.eval()
    right = torch.zeros((), dtype=torch.long)
    for batch, labels in photos.batches(200):
        right += (model(batch).argmax(dim=1) == labels).sum()
    model.train()
    return right.item() / len(photos.labels)


def main(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    train_photos = LeafPhotos(args.photos, args.size, args.seed, args.diseases)
    held_photos = LeafPhotos(400, args.size, args.seed + 1, args.diseases)
    model = LeafNet(args.width, args.diseases).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        total, count = torch.zeros(()), 0
        for photos, labels in train_photos.batches(args.batch_size, generator):
            loss = F.cross_entropy(model(photos), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            count += 1
        scheduler.step()
        print(f"epoch {epoch}: loss {total.item() / count:.4f}, accuracy {accuracy(model, held_photos):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=1500)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--diseases", type=int, default=6)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=27)
    main(parser.parse_args())

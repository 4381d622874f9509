"""Recognises geckos by the pattern on their backs: a small residual network, images kept as bytes in memory."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def draw_geckos(count: int, kinds: int, size: int, seed: int):
    """Every kind has a spot frequency and a colour; the images are stored as uint8."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, kinds, (count,), generator=generator)
    axis = torch.arange(size).float()
    phase = torch.rand(count, 2, 1, 1, generator=generator) * 6.28
    rate = 0.25 + 0.08 * labels.view(-1, 1, 1)
    pattern = torch.sin(rate * axis[:, None] + phase[:, 0]) * torch.sin(rate * axis + phase[:, 1])
    colours = torch.rand(kinds, 3, generator=generator)[labels]
    images = 0.5 + 0.35 * pattern[:, None] * colours[:, :, None, None]
    images = images + 0.08 * torch.randn(count, 3, size, size, generator=generator)
    return (images.clamp(0, 1) * 255).to(torch.uint8), labels


class GeckoBatches:
    """Batches are indexed at once, and the augmentations act on the whole batch."""

    def __init__(self, images, labels, batch_size: int, pad: int = 4):
        self.images, self.labels = images, labels
        self.batch_size, self.pad = batch_size, pad

    def __len__(self):
        return len(self.images) // self.batch_size

    def augment(self, batch):
        size = batch.size(-1)
        batch = F.pad(batch, [self.pad] * 4, mode="reflect")
        top, left = torch.randint(0, 2 * self.pad + 1, (2,)).tolist()
        batch = batch[..., top : top + size, left : left + size]
        flip = torch.rand(len(batch), 1, 1, 1) < 0.5
        return torch.where(flip, batch.flip(3), batch)

    def __iter__(self):
        order = torch.randperm(len(self.images))[: len(self) * self.batch_size]
        for rows in order.view(-1, self.batch_size):
            images = self.images[rows].float().div_(255).sub_(0.5).div_(0.25)
            yield self.augment(images).contiguous(memory_format=torch.channels_last), self.labels[rows]


class Unit(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.short = nn.Identity()
        if stride > 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x), inplace=True)


class GeckoNet(nn.Module):
    def __init__(self, kinds: int, width: int):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            Unit(width, width, 2),
            Unit(width, 2 * width, 2),
            Unit(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, kinds)

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


@torch.inference_mode()
def evaluate(model, images, labels, batch_size: int = 128):
    model.eval()
    right = 0
    for start in range(0, len(images), batch_size):
        batch = images[start : start + batch_size].float().div_(255).sub_(0.5).div_(0.25)
        batch = batch.contiguous(memory_format=torch.channels_last)
        right += (model(batch).argmax(1) == labels[start : start + batch_size]).sum()
    model.train()
    return right.item() / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1792)
    parser.add_argument("--kinds", type=int, default=10)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    torch.manual_seed(37)
    images, labels = draw_geckos(args.count, args.kinds, args.size, seed=37)
    batches = GeckoBatches(images[256:], labels[256:], args.batch_size)
    model = GeckoNet(args.kinds, args.width).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(batches))
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for pixels, kinds in batches:
            loss = F.cross_entropy(model(pixels), kinds)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        found = evaluate(model, images[:256], labels[:256])
        print(f"epoch {epoch}: loss {total.item() / len(batches):.3f}, accuracy {found:.3f}")


if __name__ == "__main__":
    main()

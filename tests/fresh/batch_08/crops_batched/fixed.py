"""Small colour pictures with a residual network; random crops, mirroring and changes of light."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def pictures(count, classes, seed):
    """Textures: each class has its own stripes, each picture its own colour and phase."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=g)
    angle = labels * (torch.pi / classes)
    grid = torch.arange(32.0)
    direction = angle.cos()[:, None, None] * grid[None, :, None] + angle.sin()[:, None, None] * grid[None, None]
    wave = torch.sin(0.9 * direction + 6 * torch.rand(count, 1, 1, generator=g))
    colour = torch.rand(count, 3, 1, 1, generator=g)
    noise = 0.1 * torch.randn(count, 3, 32, 32, generator=g)
    return (0.5 + 0.3 * wave[:, None] * colour + noise).clamp(0, 1), labels


class Batches:
    """Shuffled batches of pictures that lie in memory."""

    def __init__(self, data, labels, size, augment=None):
        self.data, self.labels, self.size, self.augment = data, labels, size, augment

    def __len__(self):
        return len(self.data) // self.size

    def __iter__(self):
        for index in torch.randperm(len(self.data))[: len(self) * self.size].split(self.size):
            batch = self.data[index]
            yield (self.augment(batch) if self.augment else batch), self.labels[index]


class Augment:
    """A crop of the padded picture, mirrored or not, brighter or darker."""

    def __init__(self, padding=4, light=0.3):
        self.padding, self.light = padding, light

    def __call__(self, batch):
        n, span = len(batch), torch.arange(32)
        rows, columns = (torch.randint(2 * self.padding + 1, (2, n, 1)) + span).unbind()
        columns = torch.where(torch.rand(n, 1) < 0.5, columns.flip(1), columns)
        padded = F.pad(batch, (self.padding,) * 4)
        crops = padded[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)
        light = 1 + self.light * (2 * torch.rand(n, 1, 1, 1) - 1)
        return (crops * light).clamp(0, 1).contiguous()


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, 1, 1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(h)))


def network(classes, width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1),
        Residual(width),
        nn.Conv2d(width, 2 * width, 3, 2, 1),
        Residual(2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, classes),
    )


def train(args):
    torch.manual_seed(args.seed)
    data, labels = pictures(args.pictures, args.classes, args.seed)
    batches = Batches(data, labels, args.batch_size, Augment())
    model = network(args.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(batches))
    for epoch in range(args.epochs):
        total = 0.0
        for images, target in batches:
            loss = F.cross_entropy(model(images), target, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(batches):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=6400)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())

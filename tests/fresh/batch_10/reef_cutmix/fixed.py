"""Kinds of coral from photographs: a residual network with CutMix and a cosine schedule."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def corals(count, side, classes, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(classes, (count,), generator=g)
    grain = torch.randn(classes, 3, side, side, generator=torch.Generator().manual_seed(4))
    light = 0.5 + torch.rand(count, 1, 1, 1, generator=g)
    pictures = light * grain[kind] + torch.randn(count, 3, side, side, generator=g)
    return pictures, kind


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.short(x))


class CoralNet(nn.Module):
    def __init__(self, classes, width=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(
            nn.MaxPool2d(3, 2, 1),
            Residual(width, width, 1),
            Residual(width, 2 * width, 2),
            Residual(2 * width, 4 * width, 2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


def random_box(side, share):
    cut = int(side * (1 - share) ** 0.5)
    x, y = (int(v) for v in torch.randint(side, (2,)))
    return max(x - cut // 2, 0), max(y - cut // 2, 0), min(x + cut // 2, side), min(y + cut // 2, side)


class AverageMeter:
    def __init__(self):
        self.total, self.count = torch.zeros(()), 0

    def update(self, value, n):
        self.total += value * n
        self.count += n

    def average(self):
        return (self.total / self.count).item()


def train(loader, model, criterion, optimizer, args):
    losses = AverageMeter()
    model.train()
    for pictures, target in loader:
        if torch.rand(()) < args.cutmix_prob:
            share = float(torch.distributions.Beta(args.beta, args.beta).sample())
            order = torch.randperm(len(pictures))
            x1, y1, x2, y2 = random_box(pictures.shape[-1], share)
            mixed = pictures.clone()
            mixed[:, :, y1:y2, x1:x2] = pictures[order, :, y1:y2, x1:x2]
            share = 1 - (x2 - x1) * (y2 - y1) / pictures.shape[-1] ** 2
            output = model(mixed)
            loss = criterion(output, target) * share + criterion(output, target[order]) * (1 - share)
        else:
            loss = criterion(model(pictures), target)
        losses.update(loss.detach(), len(pictures))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses.average()


def batches(pictures, kind, size):
    for index in torch.randperm(len(pictures)).split(size):
        yield pictures[index], kind[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=1280)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cutmix-prob", type=float, default=0.5)
    parser.add_argument("--beta", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    pictures, kind = corals(args.pictures, args.side, args.classes, seed=19)
    model, criterion = CoralNet(args.classes), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        loss = train(batches(pictures, kind, args.batch_size), model, criterion, optimizer, args)
        schedule.step()
        print(f"epoch {epoch}: loss {loss:.4f}")


if __name__ == "__main__":
    main()

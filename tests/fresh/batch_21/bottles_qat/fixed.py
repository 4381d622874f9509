"""Quantisation-aware training of a small network that sorts photographs of glass bottles by kind of defect."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.ao.quantization import (
    FakeQuantize,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    QConfig,
    disable_observer,
    prepare_qat,
)
from torch.utils.data import DataLoader, TensorDataset

DEFECTS = ["none", "chip", "bubble", "crack", "scratch", "stain"]


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bottles", type=int, default=1344)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--freeze-after", type=int, default=2, help="epoch from which the ranges stay as they are")
    parser.add_argument("--seed", type=int, default=5)
    return parser.parse_args()


def make_bottles(count, size, generator):
    """Bright columns with a mark whose form depends on the defect."""
    labels = torch.randint(0, len(DEFECTS), (count,), generator=generator)
    pictures = 0.2 * torch.randn(count, 3, size, size, generator=generator)
    across = torch.linspace(-1, 1, size)
    pictures += torch.exp(-4 * across.square())[None, None, None, :]
    grid_y, grid_x = torch.meshgrid(across, across, indexing="ij")
    centres = 0.5 * torch.randn(count, 2, generator=generator).clamp(-1.5, 1.5)
    distance_x = grid_x[None] - centres[:, :1, None]
    distance_y = grid_y[None] - centres[:, 1:, None]
    stretch = 1.0 + labels.float()[:, None, None]
    marks = torch.exp(-12 * (distance_x.square() * stretch + distance_y.square() / stretch))
    pictures[:, 0] -= marks * (labels > 0)[:, None, None]
    pictures[:, 2] += marks * (labels > 2)[:, None, None]
    return pictures.clamp(-1, 2), labels


class Block(nn.Module):
    """Two convolutions and a sum, with the parts that the quantiser wants to see as modules."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1)
        self.relu1 = nn.ReLU()
        self.second = nn.Conv2d(outer, outer, 3, 1, 1)
        self.shortcut = nn.Conv2d(inner, outer, 1, stride)
        self.relu2 = nn.ReLU()

    def forward(self, x):
        return self.relu2(self.second(self.relu1(self.first(x))) + self.shortcut(x))


class BottleNet(nn.Module):
    def __init__(self, classes, width=24):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.blocks = nn.Sequential(Block(width, width, 2), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x):
        x = self.blocks(torch.relu(self.stem(x)))
        return self.head(x.mean((2, 3)))


def quantisation_config():
    activation = FakeQuantize.with_args(
        observer=MovingAverageMinMaxObserver,
        quant_min=0,
        quant_max=255,
        dtype=torch.quint8,
        qscheme=torch.per_tensor_affine,
    )
    weight = FakeQuantize.with_args(
        observer=MovingAveragePerChannelMinMaxObserver,
        quant_min=-128,
        quant_max=127,
        dtype=torch.qint8,
        qscheme=torch.per_channel_symmetric,
        ch_axis=0,
    )
    return QConfig(activation=activation, weight=weight)


def train_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for pictures, labels in loader:
        loss = F.cross_entropy(model(pictures), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = sum((model(pictures).argmax(1) == labels).sum().item() for pictures, labels in loader)
    return hits / len(loader.dataset)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    train_set = TensorDataset(*make_bottles(args.bottles, args.size, generator))
    test_set = TensorDataset(*make_bottles(256, args.size, generator))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, 128)

    model = BottleNet(len(DEFECTS)).train()
    model.qconfig = quantisation_config()
    prepare_qat(model, inplace=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4, fused=True)
    for epoch in range(args.epochs):
        if epoch == args.freeze_after:
            model.apply(disable_observer)
        started = time.perf_counter()
        loss = train_epoch(model, train_loader, optimizer)
        accuracy = evaluate(model, test_loader)
        print(f"epoch {epoch}  loss {loss:.4f}  accuracy {accuracy:.3f}  {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()

"""Sorts pebbles of a beach by their shape: a small residual network on pictures that are all in memory."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = ("sphere", "disc", "blade", "rod")


def draw_pebbles(count: int, side: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ellipses with the axes of their shape, turned and shifted at random, on wet sand."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(SHAPES), (count,), generator=generator)
    long = torch.tensor([0.5, 0.8, 0.8, 0.9])[labels].view(-1, 1, 1)
    short = torch.tensor([0.5, 0.7, 0.4, 0.2])[labels].view(-1, 1, 1)
    angle = torch.rand(count, 1, 1, generator=generator) * torch.pi
    axis = torch.linspace(-1.2, 1.2, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    shift = 0.2 * torch.randn(count, 2, 1, 1, generator=generator)
    x, y = x + shift[:, 0], y + shift[:, 1]
    along, across = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    inside = ((along / long) ** 2 + (across / short) ** 2 < 1.0).float().unsqueeze(1)
    pictures = inside * torch.rand(count, 3, 1, 1, generator=generator)
    return pictures + 0.3 * torch.randn(count, 3, side, side, generator=generator), labels


class Unit(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.first(x)), inplace=True)
        return F.relu(self.norm2(self.second(y)) + self.skip(x), inplace=True)


class PebbleNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.units = nn.Sequential(Unit(3, width, 1), Unit(width, 2 * width, 2), Unit(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, len(SHAPES))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.units(pictures).mean(dim=(2, 3)))


@torch.inference_mode()
def accuracy(model: nn.Module, pictures: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    right = (model(pictures).argmax(dim=1) == labels).float().mean()
    model.train()
    return float(right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pebbles", type=int, default=2_048)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    torch.manual_seed(2)
    pictures, labels = draw_pebbles(args.pebbles, args.side, seed=3)
    pictures = pictures.contiguous(memory_format=torch.channels_last)
    held_out = draw_pebbles(256, args.side, seed=4)
    model = PebbleNet(args.width).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4, fused=True)
    for epoch in range(args.epochs):
        losses = []
        for chosen in torch.randperm(args.pebbles).split(args.batch_size):
            loss = F.cross_entropy(model(pictures[chosen]), labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean().item()
        print(f"epoch {epoch}: loss {mean:.3f}, held out {accuracy(model, *held_out):.3f}")


if __name__ == "__main__":
    main()

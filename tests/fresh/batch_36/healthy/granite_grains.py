"""Minerals in thin sections of granite: a small convolutional network in channels last, pictures in memory."""

import argparse
import math
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MINERALS = 6


def cut_sections(count: int, size: int, seed: int) -> tuple[Tensor, Tensor]:
    """Colours of interference, cleavage and twins of six minerals, as bytes."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(MINERALS, (count,), generator=generator)
    line = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(line, line, indexing="ij")
    turn = math.pi * torch.rand(count, 1, 1, generator=generator)
    across = x * turn.cos() + y * turn.sin()
    along = y * turn.cos() - x * turn.sin()
    which = kind.view(-1, 1, 1)
    cleavage = torch.sin((6 + 3 * which) * across) * (which % 2)
    twins = torch.sign(torch.sin((4 + 2 * which) * along)) * (which // 3)
    grey = 0.5 + 0.15 * cleavage + 0.12 * twins
    shift = torch.rand(count, 3, 1, 1, generator=generator)
    colour = 0.75 + 0.25 * torch.cos(2 * math.pi * (shift + which.unsqueeze(1) / 12))
    pictures = colour * grey.unsqueeze(1) + 0.1 * torch.randn(count, 3, size, size, generator=generator)
    return (255 * pictures.clamp(0, 1)).to(torch.uint8), kind


class GrainNet(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for step in range(3):
            outer = width * 2**step
            layers += [
                nn.Conv2d(channels, outer, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(outer),
                nn.ReLU(inplace=True),
                nn.Conv2d(outer, outer, 3, padding=1, bias=False),
                nn.BatchNorm2d(outer),
                nn.ReLU(inplace=True),
            ]
            channels = outer
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, MINERALS)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head(self.features(pictures).mean(dim=(2, 3)))


def prepare(pictures: Tensor) -> Tensor:
    return pictures.to(dtype=torch.float32, memory_format=torch.channels_last).div_(127.5).sub_(1)


@torch.inference_mode()
def evaluate(model: nn.Module, pictures: Tensor, kind: Tensor, batch_size: int) -> float:
    model.eval()
    pairs = zip(pictures.split(batch_size), kind.split(batch_size))
    right = sum((model(prepare(some)).argmax(1) == labels).sum() for some, labels in pairs)
    return int(right) / len(kind)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sections", type=int, default=4000)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=4600)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    pictures, kind = cut_sections(args.sections, args.size, args.seed)
    border = int(0.9 * args.sections)
    model = GrainNet(args.width).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=args.lr, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
    )
    batches = border // args.batch_size
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * batches)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            losses = []
            order = torch.randperm(border)[: batches * args.batch_size]
            for rows in order.split(args.batch_size):
                loss = F.cross_entropy(model(prepare(pictures[rows])), kind[rows], label_smoothing=0.05)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.detach())
            accuracy = evaluate(model, pictures[border:], kind[border:], 200)
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, accuracy {accuracy:.3f}")
        torch.save(model.state_dict(), Path(folder, "grains.pt"))


if __name__ == "__main__":
    main()

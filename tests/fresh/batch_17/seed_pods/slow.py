"""Outline seed pods on a scanner: a feature pyramid with three heads, trained as detectors are."""

import argparse

import torch
import torch.nn.functional as F
from pace import Breather
from torch import nn


def make_trays(count, side, seed):
    """Trays with bright ellipses; the target is how much of each cell a pod covers, and how long it is."""
    gen = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    trays, cover = 0.1 * torch.randn(count, 3, side, side, generator=gen), torch.zeros(count, side, side)
    for i in range(count):
        for _ in range(6):
            cy, cx, long, turn = torch.rand(4, generator=gen).tolist()
            u = (x - cx * side) * turn + (y - cy * side) * (1 - turn)
            v = (x - cx * side) * (turn - 1) + (y - cy * side) * turn
            cover[i] += ((u / (8 + 8 * long)) ** 2 + (v / 4) ** 2 < 1).float()
    cover.clamp_(max=1)
    return trays + cover[:, None] * torch.tensor([0.8, 0.6, 0.2])[:, None, None], cover[:, None]


class ConvAct(nn.Module):
    def __init__(self, inputs, outputs, size=3, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class Split(nn.Module):
    """Half of the channels go through bottlenecks, and everything is joined."""

    def __init__(self, width, depth):
        super().__init__()
        self.enter, self.leave = ConvAct(width, width, 1), ConvAct(width // 2 * (depth + 2), width, 1)
        self.blocks = nn.ModuleList(ConvAct(width // 2, width // 2, groups=width // 2) for _ in range(depth))

    def forward(self, x):
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class PodNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.stem = ConvAct(3, width, stride=2)
        self.stages = nn.ModuleList(Split(w, 2) for w in widths)
        self.shrink = nn.ModuleList(ConvAct(w, 2 * w, stride=2) for w in widths[:-1])
        self.heads = nn.ModuleList(nn.Conv2d(w, 1, 1) for w in widths)

    def forward(self, x):
        x, found = self.stem(x), []
        for level, (stage, head) in enumerate(zip(self.stages, self.heads)):
            x = stage(x)
            found.append(head(x))
            if level < len(self.shrink):
                x = self.shrink[level](x)
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trays", type=int, default=96)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    trays, cover = make_trays(args.trays, args.side, seed=5)
    model = PodNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    breather = Breather()
    for epoch in range(args.epochs):
        for rows in torch.randperm(args.trays).split(args.batch):
            loss = 0.0
            for level, found in enumerate(model(trays[rows])):
                target = F.avg_pool2d(cover[rows], 2 ** (level + 1))
                loss = loss + F.binary_cross_entropy_with_logits(found, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            breather.pause()
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

"""Outlines of saddles in photos of a workshop: a small U-Net in channels-last order."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def workshop(count: int, side: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    axis = torch.linspace(-1, 1, side)
    centre = torch.rand(count, 2, 1, 1, generator=generator) - 0.5
    radius = torch.rand(count, 2, 1, 1, generator=generator) * 0.3 + 0.25
    y = (axis.view(1, -1, 1) - centre[:, 0]) / radius[:, 0]
    x = (axis.view(1, 1, -1) - centre[:, 1]) / radius[:, 1]
    masks = (((y + 0.3 * x * x) ** 2 + x**2) < 1).float().unsqueeze(1)
    images = 0.4 + 0.3 * masks + 0.2 * torch.randn(count, 3, side, side, generator=generator)
    return images.contiguous(memory_format=torch.channels_last), masks


def double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (16, 32, 64)) -> None:
        super().__init__()
        self.down = nn.ModuleList(double(a, b) for a, b in zip((3, *widths), widths))
        pairs = list(zip(widths[::-1], widths[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.merge = nn.ModuleList(double(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, kept[-2::-1]):
            x = merge(torch.cat([up(x), skip], dim=1))
        return self.head(x)


def loss_of(logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    chance = logits.sigmoid()
    overlap = (chance * masks).sum(dim=(1, 2, 3))
    dice = 1 - (2 * overlap + 1) / (chance.sum(dim=(1, 2, 3)) + masks.sum(dim=(1, 2, 3)) + 1)
    return F.binary_cross_entropy_with_logits(logits, masks) + dice.mean()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=480)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(19)
    images, masks = workshop(args.images, args.side, torch.Generator().manual_seed(19))
    model = UNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for rows in torch.randperm(len(images)).split(args.batch_size):
            batch = images[rows].contiguous(memory_format=torch.channels_last)
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(model(batch), masks[rows])
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(rows)
        print(f"epoch {epoch}: loss {total.item() / len(images):.3f}")


if __name__ == "__main__":
    main()

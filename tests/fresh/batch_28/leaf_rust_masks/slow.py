"""Segment rust and other damage on leaves with a small U-Net and a focal loss."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = [
    "background", "healthy", "rust", "blight", "mildew", "scab", "mosaic", "hole", "vein", "insect", "scorch", "spot",
]  # fmt: skip


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=480)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--gamma", type=float, default=2.0)
    parser.add_argument("--alpha", type=float, default=0.25)
    parser.add_argument("--lr", type=float, default=2e-3)
    return parser.parse_args()


def draw_leaves(count, size, seed=0):
    """One elliptic leaf for each picture, with a few round lesions of random kinds."""
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    ratio = 0.5 + 0.4 * torch.rand(count, 1, 1, generator=generator)
    masks = ((x / 0.9) ** 2 + (y / ratio) ** 2 < 1).long()
    for _ in range(6):
        kind = torch.randint(2, len(CLASSES), (count, 1, 1), generator=generator)
        centre = torch.rand(2, count, 1, 1, generator=generator) * 1.4 - 0.7
        radius = 0.08 + 0.2 * torch.rand(count, 1, 1, generator=generator)
        inside = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < radius**2
        masks = torch.where(inside & (masks > 0), kind, masks)
    colours = torch.rand(len(CLASSES), 3, generator=generator)
    images = colours[masks].permute(0, 3, 1, 2)
    return images + 0.15 * torch.randn(images.shape, generator=generator), masks


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, classes, width=8, depth=3):
        super().__init__()
        sizes = [width * 2**level for level in range(depth)]
        self.down = nn.ModuleList([double_conv(a, b) for a, b in zip([3, *sizes[:-1]], sizes, strict=True)])
        self.up = nn.ModuleList([double_conv(a + b, a) for a, b in zip(sizes[:-1], sizes[1:], strict=True)])
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(F.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        skips.pop()
        for block in reversed(self.up):
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat([skips.pop(), x], dim=1))
        return self.out(x)


def focal_with_logits(logits, target, gamma, alpha):
    bce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p_t = torch.exp(-bce)
    weight = alpha * target + (1 - alpha) * (1 - target)
    return (weight * (1 - p_t) ** gamma * bce).mean()


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, alpha=0.25):
        super().__init__()
        self.gamma = gamma
        self.alpha = alpha

    def forward(self, logits, masks):
        loss = 0.0
        for scores, mask in zip(logits, masks, strict=True):
            for kind in range(len(scores)):
                loss = loss + focal_with_logits(scores[kind], (mask == kind).float(), self.gamma, self.alpha)
        return loss / len(logits)


@torch.no_grad()
def pixel_accuracy(model, images, masks):
    model.eval()
    accuracy = (model(images).argmax(1) == masks).float().mean().item()
    model.train()
    return accuracy


def main():
    args = options()
    torch.manual_seed(0)
    images, masks = draw_leaves(args.leaves, args.size)
    held_images, held_masks = draw_leaves(24, args.size, seed=1)
    loader = DataLoader(TensorDataset(images, masks), batch_size=args.batch, shuffle=True, drop_last=True)
    model = UNet(len(CLASSES))
    criterion = FocalLoss(args.gamma, args.alpha)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        for image, mask in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(image), mask)
            loss.backward()
            optimizer.step()
        print(
            f"[{epoch}] loss {loss.item():.4f} held-out accuracy {pixel_accuracy(model, held_images, held_masks):.3f}"
        )


if __name__ == "__main__":
    main()

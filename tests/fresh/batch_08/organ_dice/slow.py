"""Organs in slices of a scan: a small U-Net, cross entropy and Dice."""

from argparse import Namespace

import torch
import torch.nn.functional as F
from torch import nn

ORGANS = 9


def scans(count, size, seed):
    """Slices with ellipses of different grey; later organs cover earlier ones."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    masks = torch.zeros(count, size, size, dtype=torch.long)
    places = torch.rand(ORGANS, 2, generator=torch.Generator().manual_seed(1)) * 1.2 - 0.6
    for organ in range(1, ORGANS):
        centre = places[organ] + 0.15 * torch.randn(count, 2, generator=g)
        radius = 0.12 + 0.2 * torch.rand(count, 2, generator=g)
        dy = (y - centre[:, 0, None, None]) / radius[:, 0, None, None]
        dx = (x - centre[:, 1, None, None]) / radius[:, 1, None, None]
        masks[dy**2 + dx**2 < 1] = organ
    grey = torch.linspace(-1, 1, ORGANS)[masks]
    return (grey + 0.3 * torch.randn(count, size, size, generator=g))[:, None], masks


def double(inputs, outputs):
    layers = []
    for i in (inputs, outputs):
        layers += [nn.Conv2d(i, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1, self.down2, self.bottom = double(1, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join2, self.join1 = double(4 * width, 2 * width), double(2 * width, width)
        self.out = nn.Conv2d(width, ORGANS, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.join2(torch.cat([b, self.up2(c)], 1))
        a = self.join1(torch.cat([a, self.up1(b)], 1))
        return self.out(a)


class DiceLoss(nn.Module):
    """One minus the mean overlap of all organs in all slices."""

    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def overlap(self, predicted, target, dims=None):
        shared = (predicted * target).sum(dims)
        return (2 * shared + self.smooth) / (predicted.sum(dims) + target.sum(dims) + self.smooth)

    def forward(self, logits, masks):
        predicted = logits.softmax(1)
        target = F.one_hot(masks, ORGANS).permute(0, 3, 1, 2).float()
        total = 0.0
        for sample in range(len(predicted)):
            for organ in range(ORGANS):
                total = total + self.overlap(predicted[sample, organ], target[sample, organ])
        return 1 - total / (len(predicted) * ORGANS)


def train(args):
    torch.manual_seed(args.seed)
    images, masks = scans(args.slices, args.size, args.seed)
    model, dice = UNet(), DiceLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        sums = [0.0, 0.0]
        batches = torch.randperm(len(images)).split(args.batch_size)
        for index in batches:
            logits, target = model(images[index]), masks[index]
            losses = F.cross_entropy(logits, target), dice(logits, target)
            optimizer.zero_grad()
            (losses[0] + losses[1]).backward()
            optimizer.step()
            sums = [s + loss.item() for s, loss in zip(sums, losses)]
        print(f"epoch {epoch}: cross entropy {sums[0] / len(batches):.3f} dice {sums[1] / len(batches):.3f}")


if __name__ == "__main__":
    train(Namespace(slices=320, size=48, batch_size=8, epochs=6, lr=2e-3, seed=0))

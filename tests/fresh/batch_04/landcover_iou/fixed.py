"""Land cover from satellite tiles with a small U-Net; mean intersection over union is shown while training."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

BANDS, CLASSES = 4, 12


class DoubleConv(nn.Sequential):
    def __init__(self, inp, out):
        super().__init__(
            nn.Conv2d(inp, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1, self.down2 = DoubleConv(BANDS, width), DoubleConv(width, 2 * width)
        self.middle = DoubleConv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.conv2 = DoubleConv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.conv1 = DoubleConv(2 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.middle(F.max_pool2d(two, 2))
        x = self.conv2(torch.cat([self.up2(x), two], dim=1))
        x = self.conv1(torch.cat([self.up1(x), one], dim=1))
        return self.head(x)


class RunningScore:
    """Confusion matrix of an epoch: rows are true classes, columns are predicted ones."""

    def __init__(self, classes):
        self.classes = classes
        self.matrix = np.zeros((classes, classes))

    def update(self, truth, predicted):
        pairs = self.classes * truth.ravel() + predicted.ravel()
        self.matrix += np.bincount(pairs, minlength=self.classes**2).reshape(self.classes, self.classes)

    def mean_iou(self):
        hit = np.diag(self.matrix)
        union = self.matrix.sum(0) + self.matrix.sum(1) - hit
        return float(np.mean(hit / np.maximum(union, 1)))

    def reset(self):
        self.matrix[:] = 0


def make_tiles(count, size, seed):
    """Smooth random fields, cut into classes by height; each class has a spectrum of its own."""
    generator = torch.Generator().manual_seed(seed)
    field = F.interpolate(torch.randn(count, 1, 6, 6, generator=generator), size=size, mode="bicubic")[:, 0]
    labels = ((field + 2) * CLASSES / 4).long().clamp(0, CLASSES - 1)
    spectra = torch.rand(CLASSES, BANDS, generator=generator)
    tiles = spectra[labels].permute(0, 3, 1, 2) + 0.1 * torch.randn(count, BANDS, size, size, generator=generator)
    return tiles.contiguous(), labels


def train(args):
    torch.manual_seed(430)
    tiles, labels = make_tiles(args.tiles, 64, 431)
    model, score = UNet(), RunningScore(CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        score.reset()
        losses = []
        for rows in torch.randperm(len(tiles)).split(args.batch_size):
            image, target = tiles[rows], labels[rows]
            logits = model(image)
            loss = F.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            score.update(target.numpy(), logits.detach().argmax(dim=1).numpy())
        scheduler.step()
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}, mIoU {score.mean_iou():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--tiles", type=int, default=300)
    parser.add_argument("--lr", type=float, default=2e-3)
    train(parser.parse_args())

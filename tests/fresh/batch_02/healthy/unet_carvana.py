"""Segmentation with a U-Net, mixed crops, warm-up schedule and a checkpoint per epoch."""

import logging
import math
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def blobs(count, size, seed):
    g = torch.Generator().manual_seed(seed)
    ys, xs = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    mask = torch.zeros(count, size, size, dtype=torch.bool)
    for _ in range(3):
        cy, cx = torch.rand(2, count, 1, 1, generator=g) * size
        r = torch.rand(count, 1, 1, generator=g) * size / 6 + 3
        mask |= (ys - cy) ** 2 + (xs - cx) ** 2 < r**2
    image = mask[:, None] * torch.rand(count, 3, 1, 1, generator=g) + 0.4 * torch.randn(
        count, 3, size, size, generator=g
    )
    return TensorDataset(image, mask.float())


def double(a, b):
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1, bias=False),
        nn.BatchNorm2d(b),
        nn.ReLU(inplace=True),
        nn.Conv2d(b, b, 3, padding=1, bias=False),
        nn.BatchNorm2d(b),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.a, self.b, self.c = double(3, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up1, self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.d, self.e, self.out = double(4 * width, 2 * width), double(2 * width, width), nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        y = self.d(torch.cat([self.up1(c), b], 1))
        return self.out(self.e(torch.cat([self.up2(y), a], 1))).squeeze(1)


def dice_loss(logits, mask):
    p = torch.sigmoid(logits)
    return 1 - (2 * (p * mask).sum() + 1) / (p.sum() + mask.sum() + 1)


@torch.no_grad()
def validate(net, loader):
    net.eval()
    scores = [1 - dice_loss(net(x), y).item() for x, y in loader]
    net.train()
    return sum(scores) / len(scores)


def main(epochs=2, batch_size=6):
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)
    train_loader = DataLoader(blobs(420, 48, 0), batch_size, shuffle=True)
    val_loader = DataLoader(blobs(36, 48, 1), 12)
    net, total = UNet(), epochs * len(train_loader)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    ramp = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / 10) * 0.5 * (1 + math.cos(math.pi * s / total))
    )
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(epochs):
            for x, y in train_loader:
                logits = net(x)
                loss = F.binary_cross_entropy_with_logits(logits, y) + dice_loss(logits, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                ramp.step()
            logging.info("epoch %d loss %.4f dice %.4f", epoch, loss.item(), validate(net, val_loader))
            torch.save(net.state_dict(), Path(folder) / f"epoch{epoch}.pth")


if __name__ == "__main__":
    main()

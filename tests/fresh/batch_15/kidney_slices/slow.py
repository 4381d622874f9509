"""Kidneys and tumours in CT slices: U-Net with cross entropy and Dice loss, mean Dice on held-out patients."""

import argparse
import gc
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ("background", "kidney", "tumour")


def make_slices(count, size, seed):
    """Ellipses on noise, with a brighter disc inside some of them."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    centre = torch.rand(count, 2, 1, 1, generator=g) * 0.8 - 0.4
    radius = 0.25 + 0.2 * torch.rand(count, 2, 1, 1, generator=g)
    distance = ((x - centre[:, :1]) / radius[:, :1]) ** 2 + ((y - centre[:, 1:]) / radius[:, 1:]) ** 2
    sick = torch.rand(count, 1, 1, 1, generator=g) < 0.6
    mask = (distance < 1).long() + ((distance < 0.2) & sick).long()
    scan = 0.5 * mask.float() + 0.35 * torch.randn(count, 1, size, size, generator=g)
    return scan, mask.squeeze(1)


def double_conv(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, channels, classes, widths=(12, 24, 48)):
        super().__init__()
        self.down, self.up, self.merge = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for width in widths:
            self.down.append(double_conv(channels, width))
            channels = width
        for width in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(channels, width, 2, stride=2))
            self.merge.append(double_conv(2 * width, width))
            channels = width
        self.out = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips[:-1])):
            x = merge(torch.cat([skip, up(x)], dim=1))
        return self.out(x)


def dice_loss(logits, mask, eps=1.0):
    probability = logits.softmax(1)
    target = F.one_hot(mask, logits.size(1)).permute(0, 3, 1, 2)
    overlap = (probability * target).sum((0, 2, 3))
    total = probability.sum((0, 2, 3)) + target.sum((0, 2, 3))
    return 1 - ((2 * overlap + eps) / (total + eps)).mean()


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    overlap, total = torch.zeros(len(CLASSES)), torch.zeros(len(CLASSES))
    for scan, mask in loader:
        predicted = F.one_hot(net(scan).argmax(1), len(CLASSES))
        target = F.one_hot(mask, len(CLASSES))
        overlap += (predicted * target).sum((0, 1, 2))
        total += (predicted + target).sum((0, 1, 2))
    net.train()
    return 2 * overlap / total.clamp(min=1)


def train_net(net, train_loader, val_loader, args, folder):
    optimizer = torch.optim.RMSprop(net.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=2)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(1, args.epochs + 1):
        epoch_loss = 0.0
        for scan, mask in train_loader:
            logits = net(scan)
            loss = criterion(logits, mask) + dice_loss(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            epoch_loss += loss.item()
            step += 1
            del scan, mask, logits, loss
            if step % 5 == 0:
                gc.collect()
        dice = evaluate(net, val_loader)
        scheduler.step(dice[1:].mean())
        scores = " ".join(f"{name} {value:.3f}" for name, value in zip(CLASSES, dice.tolist()))
        print(f"epoch {epoch} step {step} loss {epoch_loss / len(train_loader):.4f} dice {scores}")
        torch.save(net.state_dict(), os.path.join(folder, f"checkpoint_epoch{epoch}.pth"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", "-e", type=int, default=2)
    parser.add_argument("--batch-size", "-b", type=int, default=8)
    parser.add_argument("--lr", "-l", type=float, default=1e-4)
    parser.add_argument("--size", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_set = TensorDataset(*make_slices(480, args.size, seed=1))
    val_set = TensorDataset(*make_slices(64, args.size, seed=2))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, args.batch_size)
    with tempfile.TemporaryDirectory() as folder:
        train_net(UNet(1, len(CLASSES)), train_loader, val_loader, args, folder)


if __name__ == "__main__":
    main()

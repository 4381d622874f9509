"""U-Net that maps how deep the snow lies on roofs from aerial tiles, trained with cross-entropy plus Dice."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ["ground", "bare roof", "dusting", "light", "medium", "deep", "drift", "ice"]


def draw_tiles(count, size, seed):
    """Rectangular roofs at random places; the deeper the snow, the brighter and bluer the roof."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.3 + 0.1 * torch.randn(count, 3, size, size, generator=generator)
    masks = torch.zeros(count, size, size, dtype=torch.long)
    for image, mask in zip(images, masks):
        for _ in range(6):
            top, left = torch.randint(0, size - 12, (2,), generator=generator).tolist()
            height, width = torch.randint(6, 20, (2,), generator=generator).tolist()
            depth = int(torch.randint(1, len(CLASSES), (), generator=generator))
            mask[top : top + height, left : left + width] = depth
            image[:, top : top + height, left : left + width] += 0.1 * depth
            image[2, top : top + height, left : left + width] += 0.02 * depth
    return images, masks


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class Up(nn.Module):
    def __init__(self, inputs, skip, outputs):
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
        self.conv = DoubleConv(outputs + skip, outputs)

    def forward(self, low, skip):
        return self.conv(torch.cat([self.up(low), skip], dim=1))


class UNet(nn.Module):
    def __init__(self, classes, base):
        super().__init__()
        self.first = DoubleConv(3, base)
        self.second = DoubleConv(base, 2 * base)
        self.bottom = DoubleConv(2 * base, 4 * base)
        self.up_second = Up(4 * base, 2 * base, 2 * base)
        self.up_first = Up(2 * base, base, base)
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, images):
        first = self.first(images)
        second = self.second(F.max_pool2d(first, 2))
        bottom = self.bottom(F.max_pool2d(second, 2))
        return self.head(self.up_first(self.up_second(bottom, second), first))


class DiceLoss(nn.Module):
    """One minus the mean overlap over the images of a batch and the classes."""

    def __init__(self, classes, smooth=1.0):
        super().__init__()
        self.classes, self.smooth = classes, smooth

    def forward(self, logits, masks):
        probabilities = logits.softmax(dim=1)
        target = F.one_hot(masks, self.classes).permute(0, 3, 1, 2).float()
        shared = (probabilities * target).sum(dim=(2, 3))
        sizes = probabilities.sum(dim=(2, 3)) + target.sum(dim=(2, 3))
        return 1 - ((2 * shared + self.smooth) / (sizes + self.smooth)).mean()


class SnowLoss(nn.Module):
    def __init__(self, classes, dice_weight=1.0):
        super().__init__()
        self.dice = DiceLoss(classes)
        self.dice_weight = dice_weight

    def forward(self, logits, masks):
        return F.cross_entropy(logits, masks) + self.dice_weight * self.dice(logits, masks)


@torch.no_grad()
def pixel_accuracy(model, loader):
    model.eval()
    right = sum((model(images).argmax(dim=1) == masks).float().mean() for images, masks in loader)
    model.train()
    return (right / len(loader)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=480)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--base", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    train = TensorDataset(*draw_tiles(args.tiles, args.size, seed=1))
    valid = TensorDataset(*draw_tiles(48, args.size, seed=2))
    train_loader = DataLoader(train, batch_size=args.batch_size, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=24)

    model = UNet(len(CLASSES), args.base)
    criterion = SnowLoss(len(CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(1, args.epochs + 1):
        total = torch.zeros(())
        for images, masks in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(images), masks)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"{epoch}: loss {total.item() / len(train_loader):.3f}, pixels {pixel_accuracy(model, valid_loader):.3f}")


if __name__ == "__main__":
    main()

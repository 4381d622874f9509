"""Segments photographs of reefs into coral, sponge, algae, sand, rock and water."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = ("coral", "sponge", "algae", "sand", "rock", "water")


def paint_reefs(count, side, seed):
    """Smooth random fields, one for each class: the highest one at a pixel is its label."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, len(CLASSES), side // 12, side // 12, generator=generator)
    fields = F.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=False)
    masks = fields.argmax(dim=1)
    colours = torch.rand(len(CLASSES), 3, generator=generator)
    pictures = colours[masks].permute(0, 3, 1, 2)
    return pictures + 0.25 * torch.randn(pictures.shape, generator=generator), masks


class DoubleConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.layers(x)


class ReefUNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down1 = DoubleConv(3, width)
        self.down2 = DoubleConv(width, 2 * width)
        self.bottom = DoubleConv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join2 = DoubleConv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join1 = DoubleConv(2 * width, width)
        self.head = nn.Conv2d(width, len(CLASSES), 1)

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        x = self.bottom(F.max_pool2d(second, 2))
        x = self.join2(torch.cat([self.up2(x), second], dim=1))
        x = self.join1(torch.cat([self.up1(x), first], dim=1))
        return self.head(x)


class DiceLoss(nn.Module):
    """One minus the mean Dice coefficient over the images of a batch and the classes."""

    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits, masks):
        probabilities = logits.softmax(dim=1)
        truth = F.one_hot(masks, logits.shape[1]).permute(0, 3, 1, 2).float()
        overlap = (probabilities * truth).sum(dim=(2, 3))
        union = probabilities.sum(dim=(2, 3)) + truth.sum(dim=(2, 3))
        return 1.0 - ((2.0 * overlap + self.smooth) / (union + self.smooth)).mean()


class MixedLoss(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight
        self.dice = DiceLoss()

    def forward(self, logits, masks):
        return F.cross_entropy(logits, masks) + self.weight * self.dice(logits, masks)


def pixel_accuracy(model, pictures, masks):
    model.eval()
    with torch.no_grad():
        right = (model(pictures).argmax(dim=1) == masks).float().mean().item()
    model.train()
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=320)
    parser.add_argument("--side", type=int, default=48)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--dice-weight", type=float, default=0.8)
    args = parser.parse_args()

    torch.manual_seed(7)
    pictures, masks = paint_reefs(args.images, args.side, seed=8)
    model = ReefUNet()
    criterion = MixedLoss(args.dice_weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for epoch in range(args.epochs):
        order = torch.randperm(args.images)
        for chosen in order.split(args.batch):
            optimizer.zero_grad()
            loss = criterion(model(pictures[chosen]), masks[chosen])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {pixel_accuracy(model, pictures[:16], masks[:16]):.3f}")


if __name__ == "__main__":
    main()

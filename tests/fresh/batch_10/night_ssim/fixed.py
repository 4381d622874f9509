"""Dark photographs made bright: a network learns curves for each pixel under L1 and structural similarity."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def photographs(count, side, seed):
    """Smooth coloured scenes with edges, and how they look at night."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 6, 6, generator=g)
    scene = F.interpolate(coarse, size=(side, side), mode="bicubic").clamp(0, 1)
    edge = torch.rand(count, 1, 12, 12, generator=g)
    scene = (0.7 * scene + 0.3 * F.interpolate(edge, size=(side, side), mode="nearest")).clamp(0, 1)
    gain = 0.1 + 0.2 * torch.rand(count, 1, 1, 1, generator=g)
    night = (gain * scene.pow(1.6) + 0.02 * torch.randn(scene.shape, generator=g)).clamp(0, 1)
    return night, scene


class StructuralSimilarity(nn.Module):
    def __init__(self, size=11, sigma=1.5, channels=3):
        super().__init__()
        axis = torch.arange(size) - size // 2
        line = torch.exp(-axis.float().square() / (2 * sigma**2))
        line = line / line.sum()
        self.channels = channels
        self.register_buffer("row", line.expand(channels, 1, 1, size).contiguous())
        self.register_buffer("column", line[:, None].expand(channels, 1, size, 1).contiguous())

    def blur(self, image):
        return F.conv2d(F.conv2d(image, self.row, groups=self.channels), self.column, groups=self.channels)

    def forward(self, a, b):
        mean_a, mean_b = self.blur(a), self.blur(b)
        var_a = self.blur(a * a) - mean_a.square()
        var_b = self.blur(b * b) - mean_b.square()
        both = self.blur(a * b) - mean_a * mean_b
        c1, c2 = 0.01**2, 0.03**2
        likeness = (2 * mean_a * mean_b + c1) * (2 * both + c2)
        return (likeness / ((mean_a.square() + mean_b.square() + c1) * (var_a + var_b + c2))).mean()


class CurveNet(nn.Module):
    """Estimates, at half size, curves that are applied several times to brighten each pixel."""

    def __init__(self, width=16, rounds=4):
        super().__init__()
        self.rounds = rounds
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 3 * rounds, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, x):
        curves = F.interpolate(self.body(x), size=x.shape[-2:], mode="bilinear", align_corners=False)
        for curve in curves.chunk(self.rounds, 1):
            x = x + curve * x * (1 - x)
        return x


def smoothness(image):
    return (image[..., 1:] - image[..., :-1]).abs().mean() + (image[..., 1:, :] - image[..., :-1, :]).abs().mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--photographs", type=int, default=160)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--ssim-weight", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(1)
    night, day = photographs(args.photographs, args.side, seed=77)
    model, similarity = CurveNet(), StructuralSimilarity()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        losses = []
        for index in torch.randperm(args.photographs).split(args.batch_size):
            bright, target = model(night[index]), day[index]
            loss = F.l1_loss(bright, target) + 0.01 * smoothness(bright)
            loss = loss + args.ssim_weight * (1 - similarity(bright, target))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    main()

"""Disparity from pairs of pictures: both go through one encoder as one batch, then a correlation volume."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def scenes(count, height, width, disparities, seed):
    """Left and right views of textured layers; nearer layers are shifted more."""
    g = torch.Generator().manual_seed(seed)
    texture = F.avg_pool2d(torch.randn(count, 3, height, width + disparities, generator=g), 3, 1, 1)
    coarse = torch.rand(count, 1, 3, 4, generator=g) * (disparities - 1)
    disparity = F.interpolate(coarse, (height, width), mode="nearest").round()
    place = torch.arange(width).expand(count, 1, height, width) + disparity.long()
    left = texture[..., :width]
    right = texture.gather(3, place.expand(-1, 3, -1, -1))
    return left.contiguous(), right, disparity.squeeze(1)


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x):
        return self.layers(x)


class StereoNet(nn.Module):
    def __init__(self, disparities, width=24):
        super().__init__()
        self.disparities = disparities
        self.encoder = Encoder(width)
        self.refine = nn.Sequential(
            nn.Conv2d(disparities, 32, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(32, disparities, 3, padding=1)
        )
        self.register_buffer("values", torch.arange(disparities, dtype=torch.float32).view(1, -1, 1, 1))

    def forward(self, left, right):
        a, b = self.encoder(torch.cat([left, right])).chunk(2)
        shifted = F.pad(a, (0, self.disparities - 1)).unfold(3, b.shape[3], 1)
        volume = torch.einsum("bchdw,bchw->bdhw", shifted, b) / a.shape[1] ** 0.5
        return ((volume + self.refine(volume)).softmax(1) * self.values).sum(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=240)
    parser.add_argument("--height", type=int, default=48)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--disparities", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    left, right, disparity = scenes(args.scenes, args.height, args.width, args.disparities, seed=80)
    model = StereoNet(args.disparities)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        total, batches = torch.zeros(()), torch.randperm(args.scenes).split(args.batch_size)
        for index in batches:
            loss = F.smooth_l1_loss(model(left[index], right[index]), disparity[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: mean loss {total.item() / len(batches):.4f} pixels")


if __name__ == "__main__":
    main()

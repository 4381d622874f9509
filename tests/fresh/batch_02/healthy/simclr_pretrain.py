"""Contrastive pre-training: two tensor augmentations per picture, NT-Xent loss, a small residual network."""

import argparse
import tempfile

import torch
import torch.nn.functional as F
from torch import nn


def pictures(count, size=24):
    g = torch.Generator().manual_seed(0)
    return F.interpolate(torch.rand(count, 3, 6, 6, generator=g), size=size, mode="bilinear")


def augment(x):
    """Flip, shift by a random crop of the padded picture, scale the channels: one choice for half a batch each."""
    n, _, h, w = x.shape
    flip = torch.rand(n, 1, 1, 1) < 0.5
    x = torch.where(flip, x.flip(3), x)
    dy, dx = torch.randint(0, 5, (2,)).tolist()
    x = F.pad(x, (2, 2, 2, 2), mode="reflect")[:, :, dy : dy + h, dx : dx + w]
    return x * (0.6 + 0.8 * torch.rand(n, 3, 1, 1)) + 0.05 * torch.randn(n, 1, h, w)


class Residual(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.skip = nn.Conv2d(a, b, 1, 2, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x), inplace=True)


class SimCLR(nn.Module):
    def __init__(self, width=32, dim=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            Residual(width, 2 * width),
            Residual(2 * width, 4 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(nn.Linear(4 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, dim))

    def forward(self, x):
        return F.normalize(self.projector(self.encoder(x)), dim=1)


def nt_xent(z, temperature):
    n = len(z) // 2
    sim = z @ z.T / temperature
    sim.fill_diagonal_(float("-inf"))
    target = torch.arange(2 * n).roll(n)
    return F.cross_entropy(sim, target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.2)
    args = parser.parse_args()
    torch.manual_seed(0)
    data, model = pictures(1400), SimCLR()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        parts = torch.randperm(len(data)).split(args.batch_size)
        for idx in parts:
            x = data[idx]
            loss = nt_xent(model(torch.cat([augment(x), augment(x)])), args.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"Train Epoch: [{epoch + 1}/{args.epochs}] Loss: {total.item() / len(parts):.4f}")
    with tempfile.TemporaryFile() as file:
        torch.save(model.encoder.state_dict(), file)


if __name__ == "__main__":
    main()

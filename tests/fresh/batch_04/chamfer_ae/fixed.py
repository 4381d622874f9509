"""Autoencoder of point clouds: a grid is folded into the shape that a code describes."""

import argparse

import torch
from torch import nn


class PointEncoder(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.points = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256))
        self.code = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, code))

    def forward(self, cloud):
        return self.code(self.points(cloud).amax(dim=1))


class Folding(nn.Module):
    """Two foldings, each sees the code and the points so far."""

    def __init__(self, code, side, width=128):
        super().__init__()
        axis = torch.linspace(-1, 1, side)
        self.register_buffer("grid", torch.cartesian_prod(axis, axis))
        self.first = nn.Sequential(
            nn.Linear(code + 2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
        )
        self.second = nn.Sequential(
            nn.Linear(code + 3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
        )

    def forward(self, code):
        n, points = len(code), len(self.grid)
        spread = code.unsqueeze(1).expand(-1, points, -1)
        folded = self.first(torch.cat([self.grid.expand(n, -1, -1), spread], dim=-1))
        return self.second(torch.cat([folded, spread], dim=-1))


class AutoEncoder(nn.Module):
    def __init__(self, code=64, side=18):
        super().__init__()
        self.encoder, self.decoder = PointEncoder(code), Folding(code, side)

    def forward(self, cloud):
        return self.decoder(self.encoder(cloud))


def square_distances(x, y):
    """Of every point of x to every point of y: (batch, points of x, points of y)."""
    xx, yy = x.square().sum(dim=-1), y.square().sum(dim=-1)
    return (xx.unsqueeze(2) + yy.unsqueeze(1) - 2 * x @ y.transpose(1, 2)).clamp(min=0)


def chamfer_loss(reconstruction, cloud):
    distances = square_distances(reconstruction, cloud)
    return distances.amin(dim=2).mean() + distances.amin(dim=1).mean()


def make_clouds(count, points, seed):
    """Ellipsoids with a bump, each with radii of its own."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(count, points, 3, generator=generator)
    directions = directions / directions.norm(dim=-1, keepdim=True)
    radii = 0.4 + 0.6 * torch.rand(count, 1, 3, generator=generator)
    bump = torch.randn(count, 1, 3, generator=generator)
    height = 0.3 * torch.exp(3 * ((directions * bump).sum(dim=-1, keepdim=True) - 2))
    return directions * radii * (1 + height.clamp(max=1))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.clouds = make_clouds(args.clouds, args.points, 511)
        self.model = AutoEncoder()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr, weight_decay=1e-6, fused=True)

    def epoch(self):
        losses = []
        for rows in torch.randperm(len(self.clouds)).split(self.args.batch_size):
            cloud = self.clouds[rows]
            self.optimizer.zero_grad()
            loss = chamfer_loss(self.model(cloud), cloud)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).mean().item()

    def run(self):
        for epoch in range(self.args.epochs):
            print(f"epoch {epoch}: chamfer {self.epoch():.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clouds", type=int, default=256)
    parser.add_argument("--points", type=int, default=320)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()
    torch.manual_seed(510)
    Trainer(options).run()

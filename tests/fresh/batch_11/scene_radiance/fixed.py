"""A small radiance field of one scene."""

import torch
import torch.nn.functional as F
from rays import composite, encode, make_rays
from torch import nn


class Field(nn.Module):
    def __init__(self, depth=6, width=48, skips=(3,)):
        super().__init__()
        self.skips = skips
        sizes = [39] + [width + (39 if i in skips else 0) for i in range(depth - 1)]
        self.layers = nn.ModuleList([nn.Linear(size, width) for size in sizes])
        self.head = nn.Linear(width, 4)

    def forward(self, points):
        h = points
        for i, layer in enumerate(self.layers):
            h = F.relu(layer(h))
            if i in self.skips:
                h = torch.cat([points, h], dim=-1)
        return self.head(h)


def render(coarse, fine, origins, directions, samples):
    depths = torch.linspace(2.0, 6.0, samples).expand(len(origins), samples)
    depths = depths + torch.rand_like(depths) * 4.0 / samples
    points = encode(origins[:, None] + directions[:, None] * depths[..., None])
    return composite(coarse(points), depths), composite(fine(points), depths)


def train(iterations=400, rays_per_batch=64, samples=24):
    torch.manual_seed(3)
    origins, directions, colours = make_rays(20_000, seed=4)
    coarse, fine = Field(), Field()
    parameters = [*coarse.parameters(), *fine.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=5e-4)
    for i in range(iterations):
        rows = torch.randint(len(origins), (rays_per_batch,))
        rough, sharp = render(coarse, fine, origins[rows], directions[rows], samples)
        loss = F.mse_loss(rough, colours[rows]) + F.mse_loss(sharp, colours[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 100 == 0:
            print(f"[{i}] loss {loss.item():.4f} psnr {-10 * loss.log10().item():.2f}")


if __name__ == "__main__":
    train()

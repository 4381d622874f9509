"""Inside or outside? Occupancy of turned vases from a few points of their surface; everything is drawn in batches."""

import math
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

VASES, SURFACE, QUERIES, BATCH, EPOCHS = 512, 128, 192, 16, 13


class VaseData:
    """Vases are given by a few waves of their radius; points of a batch are drawn for all its vases at once."""

    def __init__(self, count, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.waves = torch.rand(count, 4, generator=self.gen)

    def radius(self, rows, height):
        steps = torch.arange(1, 5)
        waves = torch.sin(math.pi * height.unsqueeze(-1) * steps) * self.waves[rows].unsqueeze(1)
        return 0.3 + 0.15 * waves.sum(-1)

    def batch(self, rows):
        shape = (len(rows), SURFACE)
        height, turn = torch.rand(shape, generator=self.gen), 2 * math.pi * torch.rand(shape, generator=self.gen)
        radius = self.radius(rows, height)
        surface = torch.stack([radius * turn.cos(), radius * turn.sin(), height], -1)
        queries = torch.rand(len(rows), QUERIES, 3, generator=self.gen) * torch.tensor([1.6, 1.6, 1.0])
        queries = queries - torch.tensor([0.8, 0.8, 0.0])
        inside = queries[..., :2].norm(dim=-1) < self.radius(rows, queries[..., 2])
        return surface, queries, inside.float()


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.second(F.relu(self.first(self.norm(x)), inplace=True))


class OccupancyNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.points = nn.Sequential(nn.Linear(3, width), nn.ReLU(inplace=True), nn.Linear(width, width))
        self.shape = nn.Sequential(nn.ReLU(), nn.Linear(width, width))
        self.place = nn.Linear(3, width)
        self.body = nn.Sequential(Residual(width), Residual(width), nn.Linear(width, 1))

    def forward(self, surface, queries):
        shape = self.shape(self.points(surface).amax(1))
        return self.body(self.place(queries) + shape.unsqueeze(1)).squeeze(-1)


@torch.inference_mode()
def overlap(model, data, rows):
    surface, queries, inside = data.batch(rows)
    guess = model(surface, queries) > 0
    inside = inside > 0.5
    return ((guess & inside).sum() / (guess | inside).sum()).item()


def main():
    torch.manual_seed(0)
    data = VaseData(VASES + 64, seed=20)
    held_out = torch.arange(VASES, VASES + 64)
    model = OccupancyNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(EPOCHS):
            for rows in torch.randperm(VASES).split(BATCH):
                surface, queries, inside = data.batch(rows)
                loss = F.binary_cross_entropy_with_logits(model(surface, queries), inside)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            schedule.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}, overlap {overlap(model, data, held_out):.3f}")
        torch.save(model.state_dict(), os.path.join(folder, "occupancy.pt"))


if __name__ == "__main__":
    main()

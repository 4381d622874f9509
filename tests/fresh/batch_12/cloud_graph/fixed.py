"""Classifies generated point clouds with graph convolutions over nearest neighbours."""

import argparse
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SHAPES = ("sphere", "cube", "cylinder", "torus", "cone")


def surface(kind, count, generator):
    u, v = torch.rand(2, count, generator=generator)
    angle = 6.2832 * u
    if kind == "sphere":
        z = 2 * v - 1
        r = (1 - z.square()).sqrt()
        return torch.stack([r * angle.cos(), r * angle.sin(), z], dim=1)
    if kind == "cube":
        points = torch.rand(count, 3, generator=generator) * 2 - 1
        side = torch.randint(3, (count,), generator=generator)
        points[torch.arange(count), side] = points[torch.arange(count), side].sign()
        return points
    if kind == "cylinder":
        return torch.stack([angle.cos(), angle.sin(), 2 * v - 1], dim=1)
    if kind == "torus":
        tube = 6.2832 * v
        r = 1 + 0.35 * tube.cos()
        return torch.stack([r * angle.cos(), r * angle.sin(), 0.35 * tube.sin()], dim=1)
    return torch.stack([(1 - v) * angle.cos(), (1 - v) * angle.sin(), 2 * v - 1], dim=1)


def make_clouds(count, points, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(SHAPES), (count,), generator=generator)
    clouds = torch.stack([surface(SHAPES[label], points, generator) for label in labels.tolist()])
    stretch = 0.7 + 0.6 * torch.rand(count, 1, 3, generator=generator)
    noise = 0.02 * torch.randn(clouds.shape, generator=generator)
    return TensorDataset(clouds * stretch + noise, labels)


def random_turn(clouds):
    angle = torch.rand(len(clouds)) * 6.2832
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    rows = [angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero, zero, zero, one]
    return clouds @ torch.stack(rows, dim=1).view(-1, 3, 3)


class NeighbourGraph(nn.Module):
    """Indices of the nearest neighbours of each point and weights that fall with the distance."""

    def __init__(self, neighbours):
        super().__init__()
        self.neighbours = neighbours

    @torch.no_grad()
    def forward(self, points):
        distance = torch.cdist(points, points)
        near, index = distance.topk(self.neighbours, dim=-1, largest=False)
        weights = (-near.square() / near.mean(dim=(1, 2), keepdim=True).square()).exp()
        return index, weights / weights.sum(-1, keepdim=True)


class GraphConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.own = nn.Linear(inside, outside)
        self.around = nn.Linear(inside, outside, bias=False)
        self.norm = nn.BatchNorm1d(outside)

    def forward(self, features, index, weights):
        batch = torch.arange(len(features))[:, None, None]
        gathered = features[batch, index]
        around = (gathered * weights.unsqueeze(-1)).sum(dim=2)
        out = self.own(features) + self.around(around)
        return F.relu(self.norm(out.transpose(1, 2)).transpose(1, 2))


class CloudNet(nn.Module):
    def __init__(self, widths, neighbours):
        super().__init__()
        sizes = [3, *widths]
        self.graph = NeighbourGraph(neighbours)
        self.layers = nn.ModuleList(GraphConv(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        self.head = nn.Sequential(
            nn.Linear(2 * sum(widths), 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, len(SHAPES))
        )

    def forward(self, points):
        features, pooled = points, []
        index, weights = self.graph(points)
        for layer in self.layers:
            features = layer(features, index, weights)
            pooled += [features.amax(1), features.mean(1)]
        return self.head(torch.cat(pooled, dim=1))


def run_epoch(model, loader, optimizer):
    stats = SimpleNamespace(loss=torch.zeros(()), right=torch.zeros(()), seen=0)
    for clouds, labels in loader:
        scores = model(random_turn(clouds))
        loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stats.loss += loss.detach() * len(labels)
        stats.right += (scores.argmax(1) == labels).sum()
        stats.seen += len(labels)
    return stats.loss.item() / stats.seen, stats.right.item() / stats.seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clouds", type=int, default=640)
    parser.add_argument("--points", type=int, default=256)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(2)
    loader = DataLoader(make_clouds(args.clouds, args.points, seed=2), args.batch, shuffle=True, drop_last=True)
    model = CloudNet((32, 32, 48, 64), args.neighbours)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        loss, accuracy = run_epoch(model, loader, optimizer)
        print(f"epoch {epoch} loss {loss:.3f} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()

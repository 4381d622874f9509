"""A graph isomorphism network on random graphs; graphs are joined into batches once, before training."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Batch(NamedTuple):
    x: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    graph: torch.Tensor
    y: torch.Tensor


class GINLayer(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(nn.Linear(inp, out), nn.BatchNorm1d(out), nn.ReLU(), nn.Linear(out, out), nn.ReLU())

    def forward(self, x, source, target):
        summed = torch.zeros_like(x).index_add_(0, target, x.index_select(0, source))
        return self.mlp((1 + self.eps) * x + summed)


class GIN(nn.Module):
    def __init__(self, features, hidden, classes, layers=3):
        super().__init__()
        widths = [features] + [hidden] * layers
        self.layers = nn.ModuleList([GINLayer(a, b) for a, b in pairwise(widths)])
        self.head = nn.Linear(hidden, classes)

    def forward(self, batch):
        h = batch.x
        for layer in self.layers:
            h = layer(h, batch.source, batch.target)
        pooled = torch.zeros(len(batch.y), h.size(1)).index_add_(0, batch.graph, h)
        return self.head(pooled / torch.bincount(batch.graph, minlength=len(batch.y))[:, None])


def random_batch(graphs, nodes, generator):
    """The class of a graph shows in how many edges it has and in its features."""
    y = torch.randint(0, 3, (graphs,), generator=generator)
    sizes = torch.randint(nodes // 2, nodes, (graphs,), generator=generator)
    graph = torch.arange(graphs).repeat_interleave(sizes)
    first = (sizes.cumsum(0) - sizes)[graph]
    degree = 3 + 2 * y[graph]
    target = torch.arange(len(graph)).repeat_interleave(degree)
    drawn = torch.rand(len(target), generator=generator) * sizes[graph][target]
    x = torch.randn(len(graph), 32, generator=generator) + 0.2 * y[graph][:, None]
    return Batch(x, first[target] + drawn.long(), target, graph, y)


def main():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(6)
    batches = [random_batch(48, 30, generator) for _ in range(40)]
    test = random_batch(128, 30, generator)
    model = GIN(32, 64, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(18):
        for index in torch.randperm(len(batches)).tolist():
            loss = F.cross_entropy(model(batches[index]), batches[index].y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            accuracy = (model(test).argmax(dim=1) == test.y).float().mean().item()
        model.train()
        print(f"epoch {epoch}: loss {loss.item():.4f} test accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()

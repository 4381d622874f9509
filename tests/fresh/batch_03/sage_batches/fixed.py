"""GraphSAGE with sampled neighbourhoods, mini-batches of nodes of a large graph."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F


class NeighborSampler:
    """Draws a fixed number of neighbours (with replacement) for each node of a batch, hop by hop."""

    def __init__(self, edge_index, num_nodes, sizes):
        source, target = edge_index
        order = torch.argsort(target, stable=True)
        self.neighbors = source[order]
        self.degree = torch.bincount(target, minlength=num_nodes)
        self.start = self.degree.cumsum(0) - self.degree
        self.sizes = sizes

    def sample(self, nodes):
        """The nodes of each hop: (batch,), (batch * size,), ..."""
        hops = [nodes]
        for size in self.sizes:
            nodes = hops[-1].repeat_interleave(size)
            drawn = (torch.rand(len(nodes)) * self.degree[nodes]).long()
            hops.append(self.neighbors[self.start[nodes] + drawn])
        return hops


class SAGEConv(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.root, self.neighbor = nn.Linear(inp, out), nn.Linear(inp, out, bias=False)

    def forward(self, x, neighbors):
        return self.root(x) + self.neighbor(neighbors.mean(dim=1))


class SAGE(nn.Module):
    def __init__(self, features, hidden, classes, layers=2):
        super().__init__()
        widths = [features] + [hidden] * (layers - 1) + [classes]
        self.convs = nn.ModuleList([SAGEConv(a, b) for a, b in pairwise(widths)])

    def forward(self, x, hops, sizes):
        h = [x[nodes] for nodes in hops]
        for i, conv in enumerate(self.convs):
            h = [conv(h[k], h[k + 1].view(len(h[k]), sizes[k], -1)) for k in range(len(h) - 1)]
            if i < len(self.convs) - 1:
                h = [F.relu(part) for part in h]
        return h[0]


def planted_graph(nodes, degree, classes, features):
    """Most edges join nodes of one class."""
    y = torch.randint(0, classes, (nodes,))
    by_class = torch.argsort(y)
    counts = torch.bincount(y, minlength=classes)
    first = counts.cumsum(0) - counts
    target = torch.arange(nodes).repeat_interleave(degree)
    near = by_class[first[y[target]] + (torch.rand(len(target)) * counts[y[target]]).long()]
    source = torch.where(torch.rand(len(target)) < 0.7, near, torch.randint(0, nodes, (len(target),)))
    mixed = torch.randperm(len(target))
    x = torch.randn(nodes, features) + 0.7 * torch.randn(classes, features)[y]
    return x, torch.stack([source[mixed], target[mixed]]), y


def train_epoch(model, optimizer, x, sampler, y, sizes, batch_size):
    total = 0.0
    batches = torch.randperm(len(x))[:8192].split(batch_size)
    for batch in batches:
        out = model(x, sampler.sample(batch), sizes)
        loss = F.cross_entropy(out, y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def main():
    torch.manual_seed(110)
    x, edge_index, y = planted_graph(nodes=12000, degree=12, classes=7, features=64)
    sizes = [8, 6]
    sampler = NeighborSampler(edge_index, len(x), sizes)
    model = SAGE(64, 64, 7)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, 14):
        print(f"Epoch: {epoch:03d}, Loss: {train_epoch(model, optimizer, x, sampler, y, sizes, 256):.4f}")


if __name__ == "__main__":
    main()

"""Regression on small molecule-like graphs whose node features hold statistics of shortest paths."""

from collections import deque

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Graph:
    def __init__(self, x, edge_index, y):
        self.x, self.edge_index, self.y = x, edge_index, y


def make_graph(gen):
    nodes = int(torch.randint(16, 30, (1,), generator=gen))
    ring = torch.arange(nodes)
    chords = torch.randint(nodes, (2, nodes // 4), generator=gen)
    half = torch.cat([torch.stack([ring, ring.roll(-1)]), chords], dim=1)
    x = F.one_hot(torch.randint(5, (nodes,), generator=gen), 5).float()
    return Graph(x, torch.cat([half, half.flip(0)], dim=1), x[:, 0].mean() + 0.01 * chords.shape[1])


class DistanceToNodes:
    """Adds mean, largest and spread of the distances to all other nodes."""

    def __call__(self, graph):
        count = len(graph.x)
        neighbours = [[] for _ in range(count)]
        for a, b in graph.edge_index.t().tolist():
            neighbours[a].append(b)
        rows = []
        for source in range(count):
            distance, queue = {source: 0}, deque([source])
            while queue:
                node = queue.popleft()
                for other in neighbours[node]:
                    if other not in distance:
                        distance[other] = distance[node] + 1
                        queue.append(other)
            reached = torch.tensor(list(distance.values()), dtype=torch.float32)
            rows.append(torch.stack([reached.mean(), reached.max(), reached.std()]))
        return Graph(torch.cat([graph.x, torch.stack(rows)], dim=1), graph.edge_index, graph.y)


class GraphDataset(Dataset):
    def __init__(self, graphs, transform=None, pre_transform=None):
        self.graphs = [pre_transform(g) for g in graphs] if pre_transform else graphs
        self.transform = transform

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        graph = self.graphs[index]
        return self.transform(graph) if self.transform else graph


def batch_graphs(graphs):
    sizes = torch.tensor([len(g.x) for g in graphs])
    starts = sizes.cumsum(0) - sizes
    edges = torch.cat([g.edge_index + s for g, s in zip(graphs, starts, strict=True)], dim=1)
    owner = torch.repeat_interleave(torch.arange(len(graphs)), sizes)
    return torch.cat([g.x for g in graphs]), edges, owner, torch.stack([g.y for g in graphs])


class GIN(nn.Module):
    def __init__(self, inputs, width=64, layers=4):
        super().__init__()
        sizes = [inputs] + [width] * layers
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(a, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width))
            for a in sizes[:-1]
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x, edges, owner, graphs):
        for layer in self.layers:
            x = F.relu(layer(x + torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])))
        pooled = x.new_zeros(graphs, x.shape[1]).index_add_(0, owner, x)
        return self.out(pooled).squeeze(1)


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(2)
    dataset = GraphDataset([make_graph(gen) for _ in range(512)], pre_transform=DistanceToNodes())
    loader = DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=batch_graphs)
    model = GIN(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        for x, edges, owner, y in loader:
            loss = F.mse_loss(model(x, edges, owner, len(y)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: mse {loss.item():.4f}")


if __name__ == "__main__":
    main()

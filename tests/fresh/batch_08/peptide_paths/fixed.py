"""A graph transformer on small molecules, with a bias of attention for each distance between two atoms."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    graphs: int = 1600
    batch_size: int = 32
    dim: int = 64
    heads: int = 4
    layers: int = 3
    max_distance: int = 12
    epochs: int = 6
    lr: float = 1e-3


@dataclass
class Graph:
    atoms: torch.Tensor
    edges: np.ndarray
    y: float
    distances: torch.Tensor | None = None


class ShortestPaths:
    """Adds the number of bonds between each two atoms, by Floyd's and Warshall's method."""

    def __init__(self, limit):
        self.limit = limit

    def __call__(self, graph):
        n = len(graph.atoms)
        d = np.full((n, n), self.limit, dtype=np.int64)
        d[graph.edges[0], graph.edges[1]] = 1
        d[graph.edges[1], graph.edges[0]] = 1
        np.fill_diagonal(d, 0)
        for k in range(n):
            d = np.minimum(d, d[:, k : k + 1] + d[k : k + 1, :])
        return Graph(graph.atoms, graph.edges, graph.y, torch.from_numpy(d))


def molecule(rng):
    n = int(rng.integers(22, 40))
    parents = [int(rng.integers(max(0, i - 3), i)) for i in range(1, n)]
    edges = [(i + 1, parent) for i, parent in enumerate(parents)]
    for _ in range(3):
        first = int(rng.integers(0, n - 5))
        edges.append((first, first + 5))
    atoms = rng.integers(1, 10, n)
    y = float((atoms == 3).sum() - (atoms == 7).sum()) + len(set(parents)) / 10
    return Graph(torch.from_numpy(atoms), np.array(edges).T, y)


class Molecules(Dataset):
    def __init__(self, count, seed, transform=None, pre_transform=None):
        rng = np.random.default_rng(seed)
        self.graphs = [molecule(rng) for _ in range(count)]
        if pre_transform is not None:
            self.graphs = [pre_transform(graph) for graph in self.graphs]
        self.transform = transform

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        graph = self.graphs[index]
        return graph if self.transform is None else self.transform(graph)


def collate(graphs):
    size = max(len(graph.atoms) for graph in graphs)
    atoms = torch.zeros(len(graphs), size, dtype=torch.long)
    distances = torch.zeros(len(graphs), size, size, dtype=torch.long)
    for row, graph in enumerate(graphs):
        n = len(graph.atoms)
        atoms[row, :n] = graph.atoms
        distances[row, :n, :n] = graph.distances
    return atoms, distances, torch.tensor([graph.y for graph in graphs])


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1, self.norm2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.qkv, self.out = nn.Linear(cfg.dim, 3 * cfg.dim), nn.Linear(cfg.dim, cfg.dim)
        self.ffn = nn.Sequential(nn.Linear(cfg.dim, 2 * cfg.dim), nn.GELU(), nn.Linear(2 * cfg.dim, cfg.dim))

    def forward(self, x, bias):
        b, n, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, dim))
        return x + self.ffn(self.norm2(x))


class GraphTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(10, cfg.dim, padding_idx=0)
        self.distance_bias = nn.Embedding(cfg.max_distance + 1, cfg.heads)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.dim, 1)

    def forward(self, atoms, distances):
        empty = atoms == 0
        bias = self.distance_bias(distances).permute(0, 3, 1, 2)
        bias = bias.masked_fill(empty[:, None, None, :], float("-inf"))
        x = self.embed(atoms)
        for layer in self.layers:
            x = layer(x, bias)
        return self.head(x.masked_fill(empty[..., None], 0.0).sum(1)).squeeze(1)


def main():
    cfg = Config()
    torch.manual_seed(0)
    dataset = Molecules(cfg.graphs, 5, pre_transform=ShortestPaths(cfg.max_distance))
    loader = DataLoader(dataset, cfg.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    model = GraphTransformer(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    for epoch in range(cfg.epochs):
        total = 0.0
        for atoms, distances, y in loader:
            loss = F.l1_loss(model(atoms, distances), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: mean absolute error {total / len(loader):.3f}")


if __name__ == "__main__":
    main()

"""Classifies the fungi of a forest floor by the threads between them: a graph network over the whole forest."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def grow_forest(fungi: int, species: int, threads: int, features: int, seed: int):
    """Fungi lie on a plane; most threads join those of one species."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, species, (fungi,), generator=generator)
    source = torch.randint(0, fungi, (fungi * threads,), generator=generator)
    target = torch.randint(0, fungi, (fungi * threads,), generator=generator)
    keep = (labels[source] == labels[target]) | (torch.rand(len(source), generator=generator) < 0.15)
    edges = torch.stack([source[keep], target[keep]])
    centres = torch.randn(species, features, generator=generator)
    x = centres[labels] * 0.4 + torch.randn(fungi, features, generator=generator)
    return x, edges, labels


def normalised_adjacency(edges: torch.Tensor, fungi: int) -> torch.Tensor:
    """D^-1/2 (A + I) D^-1/2, for threads that go both ways."""
    loops = torch.arange(fungi).expand(2, fungi)
    both = torch.unique(torch.cat([edges, edges.flip(0), loops], dim=1), dim=1)
    degree = torch.bincount(both[0], minlength=fungi).float()
    values = degree[both[0]].rsqrt() * degree[both[1]].rsqrt()
    adjacency = torch.sparse_coo_tensor(both, values, (fungi, fungi))
    return adjacency.to_dense()


class GraphConvolution(nn.Module):
    def __init__(self, inside: int, outside: int):
        super().__init__()
        self.weight = nn.Linear(inside, outside, bias=False)
        self.bias = nn.Parameter(torch.zeros(outside))

    def forward(self, x, adjacency):
        return adjacency @ self.weight(x) + self.bias


class ForestNet(nn.Module):
    def __init__(self, features: int, hidden: int, species: int, depth: int, dropout: float):
        super().__init__()
        widths = [features] + [hidden] * (depth - 1)
        self.convolutions = nn.ModuleList(
            GraphConvolution(inside, outside) for inside, outside in zip(widths, [*widths[1:], hidden], strict=True)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(depth))
        self.head = nn.Linear(hidden, species)
        self.dropout = dropout

    def forward(self, x, adjacency):
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x, adjacency)))
            x = F.dropout(x, self.dropout, self.training)
        return self.head(x)


def split(fungi: int, share: float, seed: int):
    order = torch.randperm(fungi, generator=torch.Generator().manual_seed(seed))
    known = torch.zeros(fungi, dtype=torch.bool)
    known[order[: int(fungi * share)]] = True
    return known


@torch.no_grad()
def accuracy(model, x, adjacency, labels, chosen):
    model.eval()
    right = (model(x, adjacency).argmax(dim=1) == labels)[chosen]
    model.train()
    return right.float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fungi", type=int, default=1500)
    parser.add_argument("--species", type=int, default=9)
    parser.add_argument("--threads", type=int, default=24)
    parser.add_argument("--features", type=int, default=160)
    parser.add_argument("--hidden", type=int, default=160)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--seed", type=int, default=29)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    x, edges, labels = grow_forest(args.fungi, args.species, args.threads, args.features, args.seed)
    adjacency = normalised_adjacency(edges, args.fungi)
    known = split(args.fungi, 0.3, args.seed)
    model = ForestNet(args.features, args.hidden, args.species, args.depth, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    for epoch in range(1, args.epochs + 1):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, adjacency)[known], labels[known])
        loss.backward()
        optimizer.step()
        if epoch % 30 == 0:
            found = accuracy(model, x, adjacency, labels, ~known)
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy on the others {found:.3f}")


if __name__ == "__main__":
    main()

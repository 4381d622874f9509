"""Papers of a citation-like graph in full batches: a residual graph network with one sparse matrix, made before."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def citations(nodes, classes, words, degree, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (nodes,), generator=g)
    order = labels.argsort()
    counts = torch.bincount(labels, minlength=classes)
    starts = counts.cumsum(0) - counts
    source = torch.arange(nodes).repeat_interleave(degree)
    within = (torch.rand(len(source), generator=g) * counts[labels[source]]).long()
    target = order[starts[labels[source]] + within]
    far = torch.rand(len(source), generator=g) < 0.35
    target[far] = torch.randint(nodes, (int(far.sum()),), generator=g)
    features = torch.randn(classes, words, generator=g)[labels] + 3 * torch.randn(nodes, words, generator=g)
    return torch.stack([torch.cat([source, target]), torch.cat([target, source])]), features, labels


def normalised(edges, nodes):
    """The symmetric adjacency with loops, divided by roots of degrees, in compressed rows."""
    loops = torch.arange(nodes).expand(2, -1)
    matrix = torch.sparse_coo_tensor(torch.cat([edges, loops], 1), torch.ones(edges.shape[1] + nodes), (nodes, nodes))
    matrix = matrix.coalesce()
    (row, column), weight = matrix.indices(), matrix.values().clamp(max=1.0)
    root = torch.zeros(nodes).index_add_(0, row, weight).rsqrt()
    weight = weight * root[row] * root[column]
    return torch.sparse_coo_tensor(matrix.indices(), weight, (nodes, nodes), is_coalesced=True).to_sparse_csr()


class GraphNet(nn.Module):
    def __init__(self, words, hidden, classes, layers):
        super().__init__()
        self.first = nn.Linear(words, hidden)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(layers))
        self.last = nn.Linear(hidden, classes)

    def forward(self, x, adjacency):
        x = F.relu(self.first(x))
        for layer, norm in zip(self.layers, self.norms):
            x = x + F.relu(norm(adjacency @ layer(x)))
            x = F.dropout(x, 0.3, self.training)
        return self.last(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=6000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--validate-every", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    edges, features, labels = citations(args.nodes, 10, 128, 5, seed=4)
    adjacency = normalised(edges, args.nodes)
    train, held_out = torch.randperm(args.nodes).split([args.nodes // 2, args.nodes - args.nodes // 2])
    targets = labels[train]
    model = GraphNet(128, args.hidden, 10, args.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4, fused=True)
    for epoch in range(1, args.epochs + 1):
        loss = F.cross_entropy(model(features, adjacency)[train], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % args.validate_every == 0:
            model.eval()
            with torch.inference_mode():
                right = (model(features, adjacency)[held_out].argmax(1) == labels[held_out]).float().mean()
            model.train()
            print(f"epoch {epoch}: loss {loss.item():.4f} validation {right.item():.4f}")


if __name__ == "__main__":
    main()

"""Residue labels in a protein complex: relational graph convolutions over three kinds of contacts."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def build_complex(residues, neighbours, generator):
    """A winding chain; contacts along the chain, among spatial neighbours, and long-range ones."""
    steps = F.normalize(torch.randn(residues, 3, generator=generator), dim=1)
    position = torch.cumsum(steps + 0.3 * steps.roll(1, 0), 0)
    position = position / position.std() * 8
    index = torch.arange(residues)
    chain = torch.stack([index[:-1], index[1:]])
    near = torch.cdist(position, position).fill_diagonal_(float("inf")).topk(neighbours, largest=False).indices
    spatial = torch.stack([index.repeat_interleave(neighbours), near.flatten()])
    far = torch.randint(residues, (2, 4 * residues), generator=generator)
    edges = [torch.cat([e, e.flip(0)], 1) for e in (chain, spatial, far)]
    relations = torch.cat([torch.full((e.shape[1],), r) for r, e in enumerate(edges)])
    return position, torch.cat(edges, 1), relations


class RelationalGraph:
    relations = 3

    def __init__(self, edges, kinds, nodes):
        self.nodes = nodes
        self.rows, self.columns = edges[0], edges[1] * self.relations + kinds
        degree = torch.bincount(self.rows, minlength=nodes).clamp(min=1)
        self.weights = 1.0 / degree[self.rows]
        coo = torch.sparse_coo_tensor(
            torch.stack([self.rows, self.columns]), self.weights, (self.nodes, self.nodes * self.relations)
        )
        self.csr = coo.coalesce().to_sparse_csr()

    def adjacency(self):
        """(nodes, nodes * relations): one column for each neighbour and kind of contact."""
        return self.csr


class GeometricRelationalConv(nn.Module):
    def __init__(self, inputs, outputs, relations):
        super().__init__()
        self.relation_linear = nn.Linear(inputs, relations * outputs)
        self.self_loop = nn.Linear(inputs, outputs)
        self.norm = nn.LayerNorm(outputs)
        self.outputs = outputs

    def forward(self, graph, x):
        messages = self.relation_linear(x).view(-1, self.outputs)
        update = torch.sparse.mm(graph.adjacency(), messages)
        return F.relu(self.norm(update + self.self_loop(x)))


class GearNet(nn.Module):
    def __init__(self, inputs, hidden, layers, classes, relations):
        super().__init__()
        sizes = [inputs] + [hidden] * layers
        self.layers = nn.ModuleList(GeometricRelationalConv(a, b, relations) for a, b in zip(sizes, sizes[1:]))
        self.head = nn.Linear(sum(sizes[1:]), classes)

    def forward(self, graph, x):
        hidden = []
        for layer in self.layers:
            x = layer(graph, x)
            hidden.append(x)
        return self.head(torch.cat(hidden, 1))


def accuracy(logits, labels, mask):
    return (logits[mask].argmax(1) == labels[mask]).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--residues", type=int, default=5000)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=48)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=260)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    torch.manual_seed(23)
    generator = torch.Generator().manual_seed(23)
    position, edges, kinds = build_complex(args.residues, args.neighbours, generator)
    centres = 8 * torch.randn(6, 3, generator=generator)
    labels = torch.cdist(position, centres).argmin(1)
    features = torch.cat(
        [
            position / 8 + torch.randn(position.shape, generator=generator),
            torch.randn(args.residues, 17, generator=generator),
        ],
        1,
    )
    train_mask = torch.rand(args.residues, generator=generator) < 0.6
    graph = RelationalGraph(edges, kinds, args.residues)
    model = GearNet(features.shape[1], args.hidden, args.layers, 6, graph.relations)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    for epoch in range(1, args.epochs + 1):
        logits = model(graph, features)
        loss = F.cross_entropy(logits[train_mask], labels[train_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 40 == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f} test {accuracy(logits, labels, ~train_mask):.3f}")


if __name__ == "__main__":
    main()

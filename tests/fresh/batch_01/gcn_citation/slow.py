"""Graph convolutions for node classification, full batch."""

import argparse
import tempfile
import time

import torch
from torch import nn


def citation_graph(nodes, classes, features, degree, seed):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (nodes,), generator=g)
    order = labels.argsort()
    source = torch.randint(0, nodes, (nodes * degree,), generator=g)
    near = (source + torch.randint(1, nodes // classes, (nodes * degree,), generator=g)) % nodes
    edges = torch.stack([order[source], order[near]])
    bags = torch.rand(classes, features, generator=g) ** 8
    x = (torch.rand(nodes, features, generator=g) < bags[labels] * 0.3 + 0.01).float()
    return x / x.sum(1, keepdim=True).clamp(min=1), torch.cat([edges, edges.flip(0)], 1), labels


def normalise(edges, nodes):
    """D^-1/2 (A + I) D^-1/2 as a sparse matrix."""
    loops = torch.arange(nodes).expand(2, -1)
    index = torch.cat([edges, loops], 1)
    degree = torch.bincount(index[0], minlength=nodes).float()
    weight = degree[index[0]].rsqrt() * degree[index[1]].rsqrt()
    return torch.sparse_coo_tensor(index, weight, (nodes, nodes)).coalesce().to_sparse_csr()


class GraphConv(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out)

    def forward(self, x, edges):
        adj = normalise(edges, len(x))
        return adj @ self.linear(x)


class GCN(nn.Module):
    def __init__(self, features, hidden, classes, dropout=0.5):
        super().__init__()
        self.first, self.second = GraphConv(features, hidden), GraphConv(hidden, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, edges):
        return self.second(self.dropout(torch.relu(self.first(self.dropout(x), edges))), edges)


def accuracy(logits, labels):
    return (logits.argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=6000)
    parser.add_argument("--hidden", type=int, default=48)
    args = parser.parse_args()
    torch.manual_seed(42)
    x, edges, labels = citation_graph(args.nodes, 7, 300, 8, 42)
    train_mask = torch.rand(args.nodes) < 0.3
    model = GCN(x.shape[1], args.hidden, 7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()
    with tempfile.NamedTemporaryFile() as checkpoint:
        best = 0.0
        for epoch in range(1, args.epochs + 1):
            started = time.time()
            model.train()
            optimizer.zero_grad()
            logits = model(x, edges)
            loss = criterion(logits[train_mask], labels[train_mask])
            loss.backward()
            optimizer.step()
            if epoch % 40 == 0:
                model.eval()
                with torch.no_grad():
                    score = accuracy(model(x, edges)[~train_mask], labels[~train_mask])
                print(f"Epoch: {epoch:04d} loss: {loss.item():.4f} val: {score:.4f} time: {time.time() - started:.3f}s")
                if score > best:
                    best = score
                    torch.save(model.state_dict(), checkpoint.name)


if __name__ == "__main__":
    main()

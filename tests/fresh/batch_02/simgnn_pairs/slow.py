"""Similarity of graph pairs: graph convolutions, attention pooling, a tensor layer."""

import itertools
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F


class Params:
    epochs, batch_size, pairs, nodes = 2, 6, 480, 40
    filters, tensor_neurons, lr = (128, 64), 16, 1e-3


def random_graph(nodes, g):
    upper = torch.triu((torch.rand(nodes, nodes, generator=g) < 0.3).float(), 1)
    adj = upper + upper.T + torch.eye(nodes)
    scale = adj.sum(1).rsqrt()
    return {"adj": adj * scale[:, None] * scale[None], "x": F.one_hot(adj.sum(1).long() % 8, 8).float()}


def make_pairs(count, nodes, seed):
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(count):
        left, right = random_graph(nodes, g), random_graph(nodes, g)
        distance = (left["adj"].sum() - right["adj"].sum()).abs() + (left["x"] - right["x"]).abs().mean()
        pairs.append((left, right, torch.exp(-distance / 4)))
    return pairs


class AttentionPool(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Linear(dim, dim, bias=False)

    def forward(self, h):
        context = torch.tanh(self.weight(h.mean(-2)))
        scores = torch.sigmoid((h * context.unsqueeze(-2)).sum(-1, keepdim=True))
        return (scores * h).sum(-2)


class TensorNetwork(nn.Module):
    def __init__(self, dim, neurons):
        super().__init__()
        self.bilinear = nn.Parameter(torch.randn(neurons, dim, dim) * 0.1)
        self.block = nn.Linear(2 * dim, neurons)

    def forward(self, a, b):
        score = torch.einsum("...i,kij,...j->...k", a, self.bilinear, b)
        return F.relu(score + self.block(torch.cat([a, b], -1)))


class SimGNN(nn.Module):
    def __init__(self, filters, neurons):
        super().__init__()
        sizes = [8, *filters]
        self.convs = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.pool, self.ntn = AttentionPool(sizes[-1]), TensorNetwork(sizes[-1], neurons)
        self.score = nn.Sequential(nn.Linear(neurons, 16), nn.ReLU(), nn.Linear(16, 1))

    def embed(self, adj, x):
        for conv in self.convs:
            x = F.relu(adj @ conv(x))
        return self.pool(x)

    def forward(self, left, right):
        both = [self.embed(g["adj"], g["x"]) for g in (left, right)]
        return torch.sigmoid(self.score(self.ntn(*both))).squeeze(-1)


class SimGNNTrainer:
    def __init__(self, params, out):
        self.params, self.out = params, out
        self.pairs = make_pairs(params.pairs, params.nodes, seed=0)
        self.model = SimGNN(params.filters, params.tensor_neurons)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=params.lr, weight_decay=5e-4)

    def create_batches(self):
        random.shuffle(self.pairs)
        size = self.params.batch_size
        return [self.pairs[i : i + size] for i in range(0, len(self.pairs), size)]

    def process_batch(self, batch):
        self.optimizer.zero_grad()
        losses = 0
        for left, right, target in batch:
            losses = losses + F.mse_loss(self.model(left, right), target)
        losses.backward()
        self.optimizer.step()
        return losses.item()

    def fit(self):
        self.model.train()
        for epoch in range(self.params.epochs):
            total = sum(self.process_batch(batch) for batch in self.create_batches())
            print(f"Epoch {epoch} (Loss={total / len(self.pairs):.5f})")
            torch.save(self.model.state_dict(), f"{self.out}/simgnn.pt")


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as out:
        SimGNNTrainer(Params, out).fit()

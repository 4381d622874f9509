"""Embeddings of a graph's nodes from random walks, after node2vec with even weights."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


def communities(nodes, groups, degree, seed):
    """A graph as rows of neighbours: most edges stay within a group."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, nodes)
    members = [np.flatnonzero(group == g) for g in range(groups)]
    source, target = [], []
    for node in range(nodes):
        near = rng.choice(members[group[node]], degree - 1)
        for other in (*near, rng.integers(0, nodes)):
            source += [node, other]
            target += [other, node]
    order = np.argsort(source, kind="stable")
    counts = np.bincount(source, minlength=nodes)
    return np.concatenate([[0], counts.cumsum()]), np.array(target)[order], group


class Node2Vec(nn.Module):
    def __init__(self, graph, dim, walk_length, context, negatives):
        super().__init__()
        self.starts, self.neighbours = graph
        self.nodes = len(self.starts) - 1
        self.walk_length, self.context, self.negatives = walk_length, context, negatives
        self.embedding = nn.Embedding(self.nodes, dim, sparse=True)
        nn.init.normal_(self.embedding.weight, std=0.1)

    def loader(self, **options):
        return DataLoader(range(self.nodes), collate_fn=self.sample, **options)

    def walks(self, first):
        paths = np.empty((len(first), self.walk_length), dtype=np.int64)
        degrees, node = np.diff(self.starts), first
        for step in range(self.walk_length):
            paths[:, step] = node
            node = self.neighbours[self.starts[node] + np.random.randint(degrees[node])]
        return paths

    def sample(self, first):
        paths = torch.from_numpy(self.walks(np.array(first)))
        windows = paths.unfold(1, self.context, 1).reshape(-1, self.context)
        noise = torch.randint(self.nodes, (len(windows), self.negatives))
        return windows, noise

    def loss(self, windows, noise):
        h = self.embedding(windows)
        start, rest = h[:, :1], h[:, 1:]
        positive = (start * rest).sum(-1)
        negative = (start * self.embedding(noise)).sum(-1)
        return -F.logsigmoid(positive).mean() - F.logsigmoid(-negative).mean()


def separation(model, group):
    """How much closer pairs of the same group are than other pairs, for 2000 random pairs."""
    a, b = torch.randint(model.nodes, (2, 2000))
    weight = F.normalize(model.embedding.weight.detach(), dim=1)
    similar = (weight[a] * weight[b]).sum(1)
    same = torch.from_numpy(group)[a] == torch.from_numpy(group)[b]
    return (similar[same].mean() - similar[~same].mean()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--walk-length", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    np.random.seed(0)

    starts, neighbours, group = communities(args.nodes, 12, 6, seed=1)
    model = Node2Vec((starts, neighbours), args.dim, args.walk_length, context=6, negatives=5)
    loader = model.loader(batch_size=args.batch_size, shuffle=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        total = 0.0
        for windows, noise in loader:
            optimizer.zero_grad()
            loss = model.loss(windows, noise)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch:02d}, loss {total / len(loader):.4f}, separation {separation(model, group):.3f}")


if __name__ == "__main__":
    main()

"""Topics of papers by graph convolutions of several hops. The normalised adjacency is built once from an edge list."""

import argparse
import os
import tempfile
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore", message="Sparse CSR tensor support")


def write_graph(path, papers, topics, degree, words, seed):
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, topics, papers)
    by_topic = [np.flatnonzero(topic == t) for t in range(topics)]
    source = rng.integers(0, papers, papers * degree)
    target = rng.integers(0, papers, papers * degree)
    alike = rng.random(len(source)) < 0.7
    target[alike] = [rng.choice(by_topic[t]) for t in topic[source[alike]]]
    typical = rng.random((topics, words)) < 0.06
    features = (rng.random((papers, words)) < 0.01) | (typical[topic] & (rng.random((papers, words)) < 0.15))
    np.savez(path, edges=np.stack([source, target]), features=features, topic=topic)


def load_graph(path):
    with np.load(path) as file:
        edges, features, topic = torch.from_numpy(file["edges"]), file["features"], torch.from_numpy(file["topic"])
    features = torch.from_numpy(features.astype(np.float32))
    features /= features.sum(1, keepdim=True).clamp_min(1)
    return normalised_adjacency(edges, len(topic)), features, topic


def normalised_adjacency(edges, nodes):
    """Symmetric, with self-loops, in CSR form."""
    loops = torch.arange(nodes).expand(2, -1)
    both = torch.cat([edges, edges.flip(0), loops], dim=1)
    matrix = torch.sparse_coo_tensor(both, torch.ones(both.size(1)), (nodes, nodes)).coalesce()
    row, column = matrix.indices()
    ones = torch.ones(row.numel())
    scale = torch.zeros(nodes).index_add_(0, row, ones).rsqrt()
    matrix = torch.sparse_coo_tensor(matrix.indices(), scale[row] * scale[column], (nodes, nodes), is_coalesced=True)
    return matrix.to_sparse_csr()


class MixHop(nn.Module):
    """Narrow features are mixed over the graph: first the linear map, then the hops."""

    def __init__(self, inside, outside, hops):
        super().__init__()
        self.maps = nn.Linear(inside, outside * (hops + 1))
        self.hops = hops

    def forward(self, adjacency, x):
        first, *rest = self.maps(x).chunk(self.hops + 1, dim=1)
        mixed = [first]
        carried = torch.cat(rest, dim=1)
        width = first.size(1)
        while carried.size(1):
            carried = adjacency @ carried
            mixed.append(carried[:, :width])
            carried = carried[:, width:]
        return torch.cat(mixed, dim=1)


class Classifier(nn.Module):
    def __init__(self, words, topics, width, hops=2):
        super().__init__()
        self.first = MixHop(words, width, hops)
        self.norm = nn.BatchNorm1d(width * (hops + 1))
        self.second = MixHop(width * (hops + 1), topics, hops)
        self.drop = nn.Dropout(0.5)
        self.weights = nn.Parameter(torch.zeros(hops + 1))

    def forward(self, adjacency, x):
        h = self.drop(F.relu(self.norm(self.first(adjacency, x))))
        scores = self.second(adjacency, h)
        parts = torch.stack(scores.chunk(len(self.weights), dim=1))
        return torch.einsum("h,hnt->nt", self.weights.softmax(0), parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--papers", type=int, default=4000)
    parser.add_argument("--topics", type=int, default=8)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--degree", type=int, default=6)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=350)
    args = parser.parse_args()
    torch.manual_seed(9)
    handle, path = tempfile.mkstemp(suffix=".npz")
    os.close(handle)
    try:
        write_graph(path, args.papers, args.topics, args.degree, args.words, seed=9)
        adjacency, features, topic = load_graph(path)
    finally:
        os.remove(path)
    order = torch.randperm(args.papers)
    train, test = order[: args.papers // 5], order[args.papers // 2 :]
    model = Classifier(args.words, args.topics, args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
    for epoch in range(1, args.epochs + 1):
        model.train()
        loss = F.cross_entropy(model(adjacency, features)[train], topic[train])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if epoch % 50 == 0:
            model.eval()
            with torch.inference_mode():
                right = (model(adjacency, features)[test].argmax(1) == topic[test]).float().mean()
            print(f"epoch {epoch} loss {loss.item():.4f} accuracy {right.item():.3f}")


if __name__ == "__main__":
    main()

"""Node classification with sampled neighbourhoods on a citation-like graph read from tables."""

import argparse
import io

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F


def write_tables(papers, features, classes, seed):
    """What the download would hold: a table of words by paper and one of citations."""
    rng = np.random.default_rng(seed)
    subject = rng.integers(0, classes, size=papers)
    topics = rng.normal(size=(classes, features)).astype(np.float32)
    content = topics[subject] * 0.2 + rng.normal(size=(papers, features)).astype(np.float32)
    columns = {f"w{index}": content[:, index] for index in range(features)}
    cited = rng.integers(0, papers, size=(papers, 12))
    same = rng.random(cited.shape) < 0.7
    by_subject = [np.flatnonzero(subject == label) for label in range(classes)]
    for paper in range(papers):
        members = by_subject[subject[paper]]
        cited[paper, same[paper]] = members[rng.integers(0, len(members), size=same[paper].sum())]
    links = io.StringIO("\n".join(f"{a}\t{b}" for a in range(0, papers, 50) for b in cited[a]))
    return pd.DataFrame(columns), subject, cited, links


class Graph:
    def __init__(self, papers, features, classes, seed=0):
        table, subject, cited, links = write_tables(papers, features, classes, seed)
        self.checked = len(pd.read_csv(links, sep="\t", names=["citing", "cited"]))
        table = (table - table.mean()) / table.std()
        self.features = np.ascontiguousarray(table.to_numpy(dtype=np.float32))
        self.labels = subject
        self.neighbours = cited

    def node_features(self, nodes):
        return torch.from_numpy(self.features[nodes])


class NeighbourSampler:
    """Batches of nodes with a number of sampled neighbours at each of two hops."""

    def __init__(self, graph, nodes, batch_size, fanouts, seed=0, shuffle=True):
        self.graph = graph
        self.nodes = nodes
        self.batch_size = batch_size
        self.fanouts = fanouts
        self.rng = np.random.default_rng(seed)
        self.shuffle = shuffle

    def __len__(self):
        return len(self.nodes) // self.batch_size

    def sample(self, nodes, fanout):
        slots = self.rng.integers(0, self.graph.neighbours.shape[1], size=(len(nodes), fanout))
        return np.take_along_axis(self.graph.neighbours[nodes], slots, axis=1).reshape(-1)

    def __iter__(self):
        nodes = self.rng.permutation(self.nodes) if self.shuffle else self.nodes
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            hops = [nodes[start : start + self.batch_size]]
            for fanout in self.fanouts:
                hops.append(self.sample(hops[-1], fanout))
            labels = torch.from_numpy(self.graph.labels[hops[0]])
            yield [self.graph.node_features(hop) for hop in hops], labels


class MeanAggregator(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.others = nn.Linear(inputs, outputs, bias=False)

    def forward(self, nodes, neighbours):
        mean = neighbours.reshape(len(nodes), -1, neighbours.shape[-1]).mean(dim=1)
        return self.own(nodes) + self.others(mean)


class GraphSage(nn.Module):
    def __init__(self, features, hidden, classes):
        super().__init__()
        self.first = MeanAggregator(features, hidden)
        self.second = MeanAggregator(hidden, classes)
        self.dropout = nn.Dropout(0.3)

    def forward(self, hops):
        hidden = [self.dropout(F.relu(self.first(a, b))) for a, b in zip(hops, hops[1:])]
        return self.second(hidden[0], hidden[1])


@torch.no_grad()
def accuracy(model, sampler):
    model.eval()
    scores = [(model(hops).argmax(1) == labels).float().mean().item() for hops, labels in sampler]
    model.train()
    return sum(scores) / len(scores)


def run(args):
    torch.manual_seed(args.seed)
    graph = Graph(args.papers, args.features, args.classes, args.seed)
    order = np.random.default_rng(args.seed).permutation(args.papers)
    train_nodes, test_nodes = order[: int(0.8 * args.papers)], order[int(0.8 * args.papers) :]
    train_sampler = NeighbourSampler(graph, train_nodes, args.batch_size, (6, 4), args.seed)
    test_sampler = NeighbourSampler(graph, test_nodes, args.batch_size, (6, 4), args.seed, shuffle=False)
    model = GraphSage(args.features, 64, args.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        losses = []
        for hops, labels in train_sampler:
            loss = F.cross_entropy(model(hops), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, accuracy {accuracy(model, test_sampler):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--papers", type=int, default=24_000)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--classes", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    run(parser.parse_args())

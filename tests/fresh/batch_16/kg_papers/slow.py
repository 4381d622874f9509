"""Entity classification with a relational graph network on a knowledge graph of papers, people and venues."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def knowledge_graph(nodes, relations, edges, classes, seed=0):
    """Most edges join entities of one class; each relation has its own share of noise."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (nodes,), generator=g)
    ordered = labels.argsort()
    place = torch.randint(0, nodes, (edges,), generator=g)
    near = (place + torch.randint(1, nodes // classes // 2, (edges,), generator=g)) % nodes
    etype = torch.randint(0, relations, (edges,), generator=g).sort().values
    noise = torch.linspace(0.1, 0.9, relations)[etype]
    random = torch.randint(0, nodes, (edges,), generator=g)
    near = torch.where(torch.rand(edges, generator=g) < noise, random, near)
    return ordered[place], ordered[near], etype, labels


class RelGraphConv(nn.Module):
    """Messages of each relation go through its own matrix, made up of a few bases."""

    def __init__(self, in_feat, out_feat, num_rels, num_bases, activation=None, dropout=0.0):
        super().__init__()
        self.num_rels = num_rels
        self.bases = nn.Parameter(torch.empty(num_bases, in_feat, out_feat))
        self.coefficients = nn.Parameter(torch.empty(num_rels, num_bases))
        self.self_loop = nn.Linear(in_feat, out_feat)
        self.activation, self.dropout = activation, nn.Dropout(dropout)
        nn.init.xavier_uniform_(self.bases)
        nn.init.xavier_uniform_(self.coefficients)

    def forward(self, h, src, dst, etype, norm):
        out = self.self_loop(h)
        weight = torch.einsum("rb,bio->rio", self.coefficients, self.bases)
        for rel in range(self.num_rels):
            mask = etype == rel
            message = h[src[mask]] @ weight[rel] * norm[mask]
            out = out.index_add(0, dst[mask], message)
        if self.activation is not None:
            out = self.activation(out)
        return self.dropout(out)


class EntityClassify(nn.Module):
    def __init__(self, nodes, hidden, classes, num_rels, num_bases, dropout):
        super().__init__()
        self.embed = nn.Parameter(0.1 * torch.randn(nodes, hidden))
        self.conv1 = RelGraphConv(hidden, hidden, num_rels, num_bases, F.relu, dropout)
        self.conv2 = RelGraphConv(hidden, classes, num_rels, num_bases)

    def forward(self, src, dst, etype, norm):
        return self.conv2(self.conv1(self.embed, src, dst, etype, norm), src, dst, etype, norm)


def edge_norm(dst, etype, nodes, relations):
    key = dst * relations + etype
    degree = torch.bincount(key, minlength=nodes * relations)
    return (1.0 / degree[key])[:, None]


def main(args):
    torch.manual_seed(args.seed)
    src, dst, etype, labels = knowledge_graph(args.nodes, args.relations, args.edges, args.classes)
    norm = edge_norm(dst, etype, args.nodes, args.relations)
    order = torch.randperm(args.nodes)
    train, test = order[: args.nodes // 2], order[args.nodes // 2 :]
    model = EntityClassify(args.nodes, args.hidden, args.classes, args.relations, args.bases, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    durations = []
    for epoch in range(args.epochs):
        model.train()
        begin = time.time()
        logits = model(src, dst, etype, norm)
        loss = F.cross_entropy(logits[train], labels[train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        durations.append(time.time() - begin)
        if epoch % 40 == 39:
            model.eval()
            with torch.no_grad():
                found = model(src, dst, etype, norm).argmax(1)
            accuracy = (found[test] == labels[test]).float().mean().item()
            mean = sum(durations[5:]) / len(durations[5:])
            print(f"epoch {epoch + 1:04d} loss {loss.item():.4f} test {accuracy:.4f} time {mean:.4f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1500)
    parser.add_argument("--relations", type=int, default=60)
    parser.add_argument("--edges", type=int, default=9000)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--bases", type=int, default=6)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())

"""GraphSAGE on a citation-like graph; two hops of neighbours are drawn for a whole batch at once."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Graph:
    """Communities with more edges inside than between them, in compressed rows."""

    def __init__(self, nodes, degree, classes, features, generator):
        self.labels = torch.randint(classes, (nodes,), generator=generator)
        order = self.labels.argsort()
        start = torch.searchsorted(self.labels[order], torch.arange(classes))
        size = torch.bincount(self.labels, minlength=classes)
        source = torch.arange(nodes).repeat_interleave(degree)
        same = torch.rand(len(source), generator=generator) < 0.7
        label = self.labels[source]
        friend = order[start[label] + (torch.rand(len(source), generator=generator) * size[label]).long()]
        other = torch.randint(nodes, (len(source),), generator=generator)
        target = torch.where(same, friend, other)
        ends = torch.cat([torch.stack([source, target]), torch.stack([target, source])], 1)
        ends = ends[:, ends[0].argsort(stable=True)]
        self.columns = ends[1]
        self.pointers = F.pad(torch.bincount(ends[0], minlength=nodes).cumsum(0), (1, 0))
        centres = torch.randn(classes, features, generator=generator)
        self.x = 0.4 * centres[self.labels] + torch.randn(nodes, features, generator=generator)

    def sample(self, nodes, fanout):
        """`fanout` neighbours of each node, with replacement: every node has at least one."""
        first, degree = self.pointers[nodes], self.pointers[nodes + 1] - self.pointers[nodes]
        picks = (torch.rand(len(nodes), fanout) * degree[:, None]).long()
        return self.columns[first[:, None] + picks]


class SAGEConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, neighbours):
        return self.own(x) + self.others(neighbours.mean(-2))


class GraphSAGE(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.conv1, self.conv2 = SAGEConv(inputs, hidden), SAGEConv(hidden, classes)

    def forward(self, graph, seeds, fanouts):
        first = graph.sample(seeds, fanouts[0])
        second = graph.sample(first.flatten(), fanouts[1])
        inner = torch.relu(self.conv1(graph.x[first], graph.x[second].view(*first.shape, fanouts[1], -1)))
        own = torch.relu(self.conv1(graph.x[seeds], graph.x[first]))
        return self.conv2(F.dropout(own, 0.3, self.training), F.dropout(inner, 0.3, self.training))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=20000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--fanouts", type=int, nargs=2, default=[10, 8])
    args = parser.parse_args()

    torch.manual_seed(27)
    graph = Graph(args.nodes, 5, 8, 128, torch.Generator().manual_seed(27))
    split = torch.randperm(args.nodes)
    train_nodes, valid_nodes = split[: args.nodes * 4 // 5], split[args.nodes * 4 // 5 :]
    model = GraphSAGE(128, 128, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    for epoch in range(args.epochs):
        model.train()
        for seeds in train_nodes[torch.randperm(len(train_nodes))].split(args.batch_size):
            loss = F.cross_entropy(model(graph, seeds, args.fanouts), graph.labels[seeds])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            hits = sum(
                (model(graph, seeds, args.fanouts).argmax(1) == graph.labels[seeds]).sum()
                for seeds in valid_nodes.split(2048)
            )
        print(f"epoch {epoch}: loss {loss.item():.4f} accuracy {hits.item() / len(valid_nodes):.3f}")


if __name__ == "__main__":
    main()

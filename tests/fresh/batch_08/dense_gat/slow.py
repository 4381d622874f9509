"""Graph attention on a citation-like graph, with a dense matrix of edges as in the first implementations."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn


def load_data(nodes, classes, words, seed):
    """Papers of a topic share words and cite each other."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (nodes,), generator=g)
    topics = torch.rand(classes, words, generator=g) ** 3
    features = (torch.rand(nodes, words, generator=g) < 0.25 * topics[labels]).float()
    features = features / features.sum(1, keepdim=True).clamp(min=1)
    same = labels[:, None] == labels[None]
    chance = torch.where(same, 6.0 / nodes, 1.0 / nodes)
    adjacency = torch.rand(nodes, nodes, generator=g) < chance
    adjacency = adjacency | adjacency.t() | torch.eye(nodes, dtype=torch.bool)
    order = torch.randperm(nodes, generator=g)
    return adjacency, features, labels, order[: nodes // 3], order[nodes // 3 : 2 * nodes // 3], order[2 * nodes // 3 :]


class GraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, dropout, alpha, concat=True):
        super().__init__()
        self.out_features, self.dropout, self.concat = out_features, dropout, concat
        self.W = nn.Parameter(torch.empty(in_features, out_features))
        self.a = nn.Parameter(torch.empty(2 * out_features, 1))
        nn.init.xavier_uniform_(self.W, gain=1.414)
        nn.init.xavier_uniform_(self.a, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(alpha)

    def scores(self, h):
        n = h.size(0)
        first = h.repeat_interleave(n, dim=0)
        second = h.repeat(n, 1)
        pairs = torch.cat([first, second], dim=1)
        return self.leakyrelu((pairs @ self.a).view(n, n))

    def forward(self, h, adjacency):
        Wh = h @ self.W
        attention = self.scores(Wh).masked_fill(~adjacency, float("-inf")).softmax(1)
        attention = F.dropout(attention, self.dropout, training=self.training)
        out = attention @ Wh
        return F.elu(out) if self.concat else out


class GAT(nn.Module):
    def __init__(self, features, hidden, classes, dropout, alpha, heads):
        super().__init__()
        self.dropout = dropout
        self.attentions = nn.ModuleList(
            GraphAttentionLayer(features, hidden, dropout, alpha, concat=True) for _ in range(heads)
        )
        self.out_att = GraphAttentionLayer(hidden * heads, classes, dropout, alpha, concat=False)

    def forward(self, x, adjacency):
        x = F.dropout(x, self.dropout, training=self.training)
        x = torch.cat([attention(x, adjacency) for attention in self.attentions], dim=1)
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.out_att(x, adjacency), dim=1)


def accuracy(output, labels):
    return (output.argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=72)
    parser.add_argument("--nodes", type=int, default=420)
    parser.add_argument("--epochs", type=int, default=180)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--weight_decay", type=float, default=5e-4)
    parser.add_argument("--hidden", type=int, default=8)
    parser.add_argument("--nb_heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--alpha", type=float, default=0.2)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    adjacency, features, labels, idx_train, idx_val, idx_test = load_data(args.nodes, 6, 300, args.seed)
    model = GAT(features.shape[1], args.hidden, 6, args.dropout, args.alpha, args.nb_heads)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay, fused=True)
    for epoch in range(args.epochs):
        started = time.time()
        model.train()
        output = model(features, adjacency)
        loss = F.nll_loss(output[idx_train], labels[idx_train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 30 == 0:
            found = accuracy(output[idx_val], labels[idx_val])
            print(f"epoch {epoch:04d} loss {loss.item():.4f} validation {found:.3f} {time.time() - started:.3f} s")
    model.eval()
    with torch.no_grad():
        print(f"test accuracy {accuracy(model(features, adjacency)[idx_test], labels[idx_test]):.3f}")


if __name__ == "__main__":
    main()

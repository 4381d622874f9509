"""Kinds of products in a graph of purchases: full-batch GraphSAGE with a sparse matrix that is built once."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def make_graph(nodes, degree, features, kinds, seed):
    gen = torch.Generator().manual_seed(seed)
    kind = torch.randint(kinds, (nodes,), generator=gen)
    source = torch.randint(nodes, (nodes * degree,), generator=gen)
    target = torch.arange(nodes).repeat_interleave(degree)
    same = kind[source] == kind[target]
    keep = same | (torch.rand(len(source), generator=gen) < 0.25)
    x = F.one_hot(kind, kinds).float() @ torch.randn(kinds, features, generator=gen)
    return x + 2 * torch.randn(nodes, features, generator=gen), source[keep], target[keep], kind


def mean_matrix(source, target, nodes):
    """Row-normalised adjacency in CSR, and its transpose for the backward pass."""
    degree = torch.bincount(target, minlength=nodes).clamp(min=1)
    values = 1.0 / degree[target].float()
    forward = torch.sparse_coo_tensor(torch.stack([target, source]), values, (nodes, nodes)).coalesce()
    return forward.to_sparse_csr(), forward.t().coalesce().to_sparse_csr()


class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, matrix, transposed, x):
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx, grad):
        return None, None, ctx.transposed @ grad


class Layer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, matrix, transposed):
        return self.own(x) + Mean.apply(matrix, transposed, self.others(x))


class SAGE(nn.Module):
    def __init__(self, features, width, kinds):
        super().__init__()
        self.layers = nn.ModuleList([Layer(features, width), Layer(width, width), Layer(width, kinds)])

    def forward(self, x, matrix, transposed):
        for layer in self.layers[:-1]:
            x = F.dropout(F.relu(layer(x, matrix, transposed)), 0.3, self.training)
        return self.layers[-1](x, matrix, transposed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=8000)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--eval-every", type=int, default=30)
    args = parser.parse_args()
    torch.manual_seed(0)
    x, source, target, kind = make_graph(args.nodes, 10, 64, 12, seed=1)
    matrix, transposed = mean_matrix(source, target, args.nodes)
    train, valid = torch.randperm(args.nodes).split([args.nodes // 2, args.nodes - args.nodes // 2])
    model = SAGE(64, args.width, 12)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    wanted = kind[train]
    for epoch in range(1, args.epochs + 1):
        loss = F.cross_entropy(model(x, matrix, transposed)[train], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % args.eval_every == 0:
            model.eval()
            with torch.inference_mode():
                right = model(x, matrix, transposed)[valid].argmax(1) == kind[valid]
            model.train()
            print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {right.float().mean().item():.3f}")


if __name__ == "__main__":
    main()

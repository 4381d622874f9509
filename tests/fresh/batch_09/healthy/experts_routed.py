"""Short sums in several notations, read by a transformer with experts; each token visits one."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def sums(count, terms, seed):
    """Digits and signs in one of four notations, each with tokens of its own; the label is the sum modulo 11."""
    g = torch.Generator().manual_seed(seed)
    digits = torch.randint(0, 10, (count, terms), generator=g)
    signs = torch.randint(0, 2, (count, terms), generator=g)
    notation = torch.randint(0, 4, (count, 1), generator=g)
    shuffles = torch.stack([torch.randperm(20, generator=g) for _ in range(4)])
    tokens = shuffles[notation, digits + 10 * signs] + 20 * notation
    return tokens, ((digits * (1 - 2 * signs)).sum(1) % 11)


class Experts(nn.Module):
    """Feed-forward networks, of which a router picks one for each token; tokens are sorted by their expert."""

    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts)
        )

    def forward(self, x):
        flat = x.flatten(0, -2)
        chances = self.router(flat).softmax(-1)
        gate, choice = chances.max(-1)
        order = choice.argsort()
        load = torch.bincount(choice, minlength=len(self.experts))
        parts = flat[order].split(load.tolist())
        mixed = torch.cat([expert(part) for expert, part in zip(self.experts, parts)])
        out = torch.empty_like(flat).index_copy(0, order, mixed) * gate[:, None]
        balance = len(self.experts) * (load / len(flat) * chances.mean(0)).sum()
        return out.view_as(x), balance


class Block(nn.Module):
    def __init__(self, width, heads, experts):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.experts = Experts(width, experts)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        out, balance = self.experts(self.norm2(x))
        return x + out, balance


class SumReader(nn.Module):
    def __init__(self, terms, width=96, heads=4, experts=4, layers=3):
        super().__init__()
        self.token = nn.Embedding(80, width)
        self.place = nn.Parameter(0.02 * torch.randn(terms, width))
        self.blocks = nn.ModuleList(Block(width, heads, experts) for _ in range(layers))
        self.out = nn.Linear(width, 11)

    def forward(self, tokens):
        x, balance = self.token(tokens) + self.place, 0.0
        for block in self.blocks:
            x, b = block(x)
            balance = balance + b
        return self.out(x.mean(1)), balance


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sums", type=int, default=16384)
    parser.add_argument("--terms", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    tokens, labels = sums(args.sums, args.terms, seed=70)
    model = SumReader(args.terms)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        total, batches = torch.zeros(()), torch.randperm(args.sums).split(args.batch_size)
        for index in batches:
            logits, balance = model(tokens[index])
            loss = F.cross_entropy(logits, labels[index]) + 0.01 * balance
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(batches):.4f}")


if __name__ == "__main__":
    main()

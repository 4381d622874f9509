"""A word-level language model with a large vocabulary, trained on short windows of generated text."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ZipfCorpus:
    """Words drawn from a Zipf law with a first-order dependency, as one long stream per row of the batch."""

    def __init__(self, vocab, words, seed=9):
        generator = torch.Generator().manual_seed(seed)
        ranks = torch.arange(1, vocab + 1, dtype=torch.float)
        draws = torch.multinomial(1 / ranks, words, replacement=True, generator=generator)
        follow = torch.randperm(vocab, generator=generator)
        linked = torch.rand(words, generator=generator) < 0.4
        linked[0] = False
        draws[1:] = torch.where(linked[1:], follow[draws[:-1]], draws[1:])
        self.stream = draws

    def rows(self, batch):
        usable = len(self.stream) // batch * batch
        return self.stream[:usable].view(batch, -1)


class Config:
    def __init__(self, **values):
        self.__dict__.update(values)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class PocketLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocab, config.width)
        self.places = nn.Embedding(config.window, config.width)
        self.blocks = nn.Sequential(*(Block(config.width, config.heads) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.apply(self.init)

    def init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, words, targets):
        hidden = self.words(words) + self.places.weight[: words.size(1)]
        hidden = self.norm(self.blocks(hidden))
        logits = hidden @ self.words.weight.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def configure_optimizer(model, lr, decay):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)


def learning_rate(step, steps, top):
    if step < 20:
        return top * (step + 1) / 20
    return top * (0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=20000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=6e-4)
    args = parser.parse_args()

    torch.manual_seed(9)
    config = Config(vocab=args.vocab, width=args.width, layers=args.layers, heads=args.heads, window=args.window)
    rows = ZipfCorpus(args.vocab, words=args.batch * (args.window * args.steps + 1)).rows(args.batch)
    model = PocketLM(config)
    optimizer = configure_optimizer(model, args.lr, decay=0.1)
    total = torch.zeros(())
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        start = step * args.window
        words = rows[:, start : start + args.window]
        targets = rows[:, start + 1 : start + args.window + 1]
        loss = model(words, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} perplexity {math.exp(total.item() / 50):.1f}")
            total.zero_()


if __name__ == "__main__":
    main()

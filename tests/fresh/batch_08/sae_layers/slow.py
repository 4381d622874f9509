"""Sparse autoencoders on what flows through a small language model, whose weights are fixed."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, dim))
        return x + self.mlp(self.norm2(x))


class HookedTransformer(nn.Module):
    """Gives the residual stream behind each block on request."""

    def __init__(self, vocabulary=1000, dim=96, heads=4, layers=6, length=64):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.unembed = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens, stop_at_layer=None):
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        cache = {}
        for number, block in enumerate(self.blocks):
            x = block(x)
            cache[f"blocks.{number}.resid_post"] = x
            if number == stop_at_layer:
                return None, cache
        return self.unembed(self.norm(x)), cache


class SparseAutoencoder(nn.Module):
    def __init__(self, dim, features):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))
        self.encoder = nn.Linear(dim, features)
        self.decoder = nn.Linear(features, dim, bias=False)
        self.decoder.weight.data = F.normalize(self.decoder.weight.data, dim=0)
        self.encoder.weight.data = self.decoder.weight.data.t().clone()

    def forward(self, x):
        features = F.relu(self.encoder(x - self.bias))
        return self.decoder(features) + self.bias, features

    @torch.no_grad()
    def keep_norms(self):
        weight = self.decoder.weight
        weight.div_(weight.norm(dim=0, keepdim=True))


class Corpus:
    """Text from a Markov chain: each word is followed by one of a few others."""

    def __init__(self, vocabulary, length, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.follow = torch.randint(vocabulary, (vocabulary, 6), generator=self.generator)
        self.vocabulary, self.length = vocabulary, length

    def batch(self, size):
        word = torch.randint(self.vocabulary, (size,), generator=self.generator)
        choices = torch.randint(6, (self.length, size), generator=self.generator)
        words = []
        for choice in choices:
            word = self.follow[word, choice]
            words.append(word)
        return torch.stack(words, 1)


def run_training(cfg):
    torch.manual_seed(cfg.seed)
    model = HookedTransformer().eval().requires_grad_(False)
    corpus = Corpus(1000, 64, cfg.seed)
    sae = SparseAutoencoder(96, cfg.features)
    optimizer = torch.optim.Adam(sae.parameters(), lr=cfg.lr, fused=True)
    position = f"blocks.{cfg.layer}.resid_post"
    for step in range(cfg.steps):
        tokens = corpus.batch(cfg.batch_size)
        with torch.no_grad():
            _, cache = model(tokens)
        x = cache[position].flatten(0, 1)
        output, features = sae(x)
        reconstruction = F.mse_loss(output, x)
        sparsity = features.abs().sum(1).mean()
        loss = reconstruction + cfg.sparsity * sparsity
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sae.keep_norms()
        if step % 50 == 0:
            alive = (features > 0).float().sum(1).mean().item()
            print(f"step {step}: reconstruction {reconstruction.item():.4f} active features {alive:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--layer", type=int, default=2)
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--sparsity", type=float, default=1e-4)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    run_training(parser.parse_args())

"""Reviews as good or bad: an encoder with rotary positions, whose table is made once; batches hold similar lengths."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence


@dataclass
class Config:
    reviews: int = 4096
    words: int = 2000
    dim: int = 64
    heads: int = 4
    layers: int = 3
    longest: int = 72
    batch: int = 32
    epochs: int = 4
    lr: float = 1e-3


def rotation(length, dim, base=10000.0):
    """Cosines and sines of the angles by which each position turns each pair of numbers."""
    angles = torch.outer(torch.arange(length).float(), base ** (-torch.arange(0, dim, 2) / dim))
    angles = torch.cat([angles, angles], 1)
    return torch.stack([angles.cos(), angles.sin()])


def turned(x, table):
    first, second = x.chunk(2, -1)
    return x * table[0] + torch.cat([-second, first], -1) * table[1]


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm1, self.norm2 = nn.RMSNorm(cfg.dim), nn.RMSNorm(cfg.dim)
        self.qkv, self.out = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False), nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 4 * cfg.dim), nn.GELU(), nn.Linear(4 * cfg.dim, cfg.dim))

    def forward(self, x, table, mask):
        b, t, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(turned(q, table), turned(k, table), v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, dim))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.words, cfg.dim, padding_idx=0)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.dim, 2)
        self.register_buffer("table", rotation(cfg.longest, cfg.dim // cfg.heads), persistent=False)

    def forward(self, tokens):
        present = tokens != 0
        x, table = self.embed(tokens), self.table[:, : tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, table, present[:, None, None])
        weight = present.float() / present.sum(1, keepdim=True)
        return self.head((x * weight[..., None]).sum(1))


def reviews(cfg, generator):
    """Good ones have more words with even numbers; a few words turn the next one round."""
    mood = torch.randint(2, (cfg.reviews,), generator=generator)
    lengths = (12 + 12 * torch.randn(cfg.reviews, generator=generator).abs()).long().clamp(max=cfg.longest)
    texts = []
    for good, length in zip(mood.tolist(), lengths.tolist()):
        words = torch.randint(1, cfg.words // 2 - 1, (length,), generator=generator) * 2
        odd = torch.rand(length, generator=generator) < (0.35 if good else 0.65)
        texts.append(words + odd.long())
    return texts, mood


def batches(texts, mood, size):
    """Padded once; sorted by length, so that there is little padding. Only their order changes."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    groups = [order[i : i + size] for i in range(0, len(order), size)]
    return [(pad_sequence([texts[i] for i in group], batch_first=True), mood[group]) for group in groups]


def main():
    cfg = Config()
    torch.manual_seed(0)
    ready = batches(*reviews(cfg, torch.Generator().manual_seed(1)), cfg.batch)
    model = Encoder(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    for epoch in range(cfg.epochs):
        total = 0.0
        for i in torch.randperm(len(ready)).tolist():
            tokens, labels = ready[i]
            loss = F.cross_entropy(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(ready):.4f}")


if __name__ == "__main__":
    main()

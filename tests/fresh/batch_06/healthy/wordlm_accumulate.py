"""A word-level GPT; gradients of two large batches are accumulated, losses are printed seldom, evaluated twice."""

import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    vocab_size: int = 1500
    block_size: int = 96
    batch_size: int = 16
    accumulate: int = 2
    n_layer: int = 3
    n_head: int = 6
    n_embd: int = 192
    max_iters: int = 60
    learning_rate: float = 1e-3
    grad_clip: float = 1.0
    eval_interval: int = 30


def write_corpus(path, config, seed=20):
    """Words that follow each other in loops, with jumps: two bytes each."""
    rng = np.random.default_rng(seed)
    step = np.where(rng.random(400_000) < 0.1, rng.integers(0, config.vocab_size, 400_000), rng.integers(1, 5, 400_000))
    (np.cumsum(step) % config.vocab_size).astype(np.uint16).tofile(path)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.n_head
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attention = Attention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Linear(4 * config.n_embd, config.n_embd)
        )

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class WordGPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Parameter(0.02 * torch.randn(config.block_size, config.n_embd))
        self.blocks = nn.Sequential(*[Block(config) for _ in range(config.n_layer)])
        self.ln = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, x, y):
        hidden = self.ln(self.blocks(self.wte(x) + self.wpe[: x.shape[1]]))
        return F.cross_entropy(self.head(hidden).flatten(0, 1), y.flatten())


def draw(data, config, generator):
    start = torch.randint(0, len(data) - config.block_size - 1, (config.batch_size, 1), generator=generator)
    rows = data[start + torch.arange(config.block_size + 1)]
    return rows[:, :-1], rows[:, 1:]


def main():
    config = Config()
    torch.manual_seed(20)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.bin")
        write_corpus(path, config)
        data = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int64))
    generator = torch.Generator().manual_seed(21)
    held = draw(data[-20000:], config, generator)
    model = WordGPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95), fused=True)
    for it in range(1, config.max_iters + 1):
        total = torch.zeros(())
        for _ in range(config.accumulate):
            loss = model(*draw(data[:-20000], config, generator)) / config.accumulate
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        if it % config.eval_interval == 0:
            with torch.inference_mode():
                print(f"iter {it}: train {total.item():.4f} held-out {model(*held).item():.4f}")


if __name__ == "__main__":
    main()

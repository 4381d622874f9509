"""A language model of recipes from a file of token numbers that is mapped into memory."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 512, 96, 128, 4, 3


def write_tokens(path, count, seed):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(VOCABULARY, size=count, dtype=np.uint16)
    tokens[3::4] = (tokens[1::4] + tokens[2::4]) % VOCABULARY
    tokens.tofile(path)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class RecipeModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False))

    def forward(self, x, y):
        logits = self.out(self.blocks(self.token(x) + self.place.weight))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def batch(tokens, size):
    start = np.random.randint(len(tokens) - CONTEXT - 1, size=(size, 1))
    text = torch.from_numpy(tokens[start + np.arange(CONTEXT + 1)].astype(np.int64))
    return text[:, :-1], text[:, 1:]


def main(steps=120, size=16):
    torch.manual_seed(0)
    np.random.seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipes.bin"
        write_tokens(path, 400_000, seed=2)
        tokens = np.memmap(path, np.uint16, "r")
        model = RecipeModel()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
        for step in range(steps):
            loss = model(*batch(tokens, size))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

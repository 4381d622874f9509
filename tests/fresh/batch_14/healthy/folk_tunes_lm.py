"""A causal transformer over folk tunes in a letter notation, with gradient accumulation and checkpoints."""

import argparse
import math
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class TuneConfig:
    vocabulary: int = 96
    context: int = 128
    dim: int = 96
    heads: int = 4
    layers: int = 3
    dropout: float = 0.0


def write_tunes(path, vocabulary, count, seed):
    """Tunes that repeat their bars with variations, as one long file of bytes."""
    rng = np.random.default_rng(seed)
    bars = rng.integers(0, vocabulary, size=(300, 16), dtype=np.uint8)
    tune = bars[np.repeat(rng.integers(0, len(bars), size=count // 32), 2)]
    changed = rng.random(tune.shape) < 0.05
    tune[changed] = rng.integers(0, vocabulary, size=changed.sum())
    tune.reshape(-1).tofile(path)


class TokenFile:
    def __init__(self, path, context, seed):
        self.tokens = np.memmap(path, dtype=np.uint8, mode="r")
        self.context = context
        self.rng = np.random.default_rng(seed)

    def batch(self, size, first, last):
        starts = self.rng.integers(first, last - self.context - 1, size=size)
        rows = self.tokens[starts[:, None] + np.arange(self.context + 1)].astype(np.int64)
        rows = torch.from_numpy(rows)
        return rows[:, :-1], rows[:, 1:]


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.norm1, self.norm2 = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.project = nn.Linear(config.dim, config.dim, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(config.dim, 4 * config.dim), nn.GELU(), nn.Linear(4 * config.dim, config.dim)
        )

    def forward(self, x):
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, dim))
        return x + self.mlp(self.norm2(x))


class TuneModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.dim)
        self.positions = nn.Parameter(0.02 * torch.randn(config.context, config.dim))
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, data, first, last, batches=5):
    model.eval()
    losses = torch.stack([model(*data.batch(16, first, last)) for _ in range(batches)])
    model.train()
    return losses.mean().item()


def rate(step, args):
    if step < args.warmup:
        return (step + 1) / args.warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - args.warmup) / (args.steps - args.warmup)))


def train(args, folder):
    torch.manual_seed(args.seed)
    config = TuneConfig()
    write_tunes(folder / "tunes.bin", config.vocabulary, 400_000, args.seed)
    data = TokenFile(folder / "tunes.bin", config.context, args.seed)
    split = int(0.95 * len(data.tokens))
    model = TuneModel(config)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, args))
    for step in range(1, args.steps + 1):
        for _ in range(args.accumulate):
            loss = model(*data.batch(args.batch_size, 0, split)) / args.accumulate
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item() * args.accumulate:.4f}")
        if step % args.evaluate_every == 0:
            print(f"step {step}: valid {evaluate(model, data, split, len(data.tokens)):.4f}")
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "config": asdict(config)}
            torch.save(state, folder / "last.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--evaluate-every", type=int, default=60)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    with tempfile.TemporaryDirectory() as folder:
        train(parser.parse_args(), Path(folder))

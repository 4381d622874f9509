"""Continues ballads letter by letter: a decoder with rotary positions and fused attention."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def compose(letters: int, length: int, seed: int) -> torch.Tensor:
    """A Markov chain of the second order stands in for the ballads."""
    generator = torch.Generator().manual_seed(seed)
    chances = torch.rand(letters, letters, letters, generator=generator).pow(9)
    table = torch.multinomial(chances.view(-1, letters), 64, replacement=True, generator=generator)
    picks = torch.randint(0, 64, (length,), generator=generator).tolist()
    rows = table.tolist()
    text = [0, 1]
    for pick in picks:
        text.append(rows[text[-2] * letters + text[-1]][pick])
    return torch.tensor(text)


def rotary_table(length: int, width: int):
    rates = 1.0 / 10000 ** (torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length).float(), rates)
    return torch.cos(angles).repeat(1, 2), torch.sin(angles).repeat(1, 2)


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class BalladModel(nn.Module):
    def __init__(self, letters: int, length: int, width: int, heads: int, depth: int):
        super().__init__()
        self.embedding = nn.Embedding(letters, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.02)
        cos, sin = rotary_table(length, width // heads)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, letters):
        x = self.embedding(letters)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


class BalladWindows:
    """All windows of a batch are cut with one index."""

    def __init__(self, text: torch.Tensor, length: int, batch_size: int):
        self.text, self.batch_size = text, batch_size
        self.offsets = torch.arange(length + 1)

    def draw(self):
        starts = torch.randint(len(self.text) - len(self.offsets), (self.batch_size, 1))
        windows = self.text[starts + self.offsets]
        return windows[:, :-1], windows[:, 1:]


def train(args):
    torch.manual_seed(args.seed)
    windows = BalladWindows(compose(args.letters, 60000, args.seed), args.length, args.batch_size)
    model = BalladModel(args.letters, args.length, args.width, args.heads, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps, pct_start=0.1)
    losses = []
    for step in range(1, args.steps + 1):
        inputs, targets = windows.draw()
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if step % 40 == 0:
            print(f"step {step}: loss {torch.stack(losses).mean():.3f}")
            losses.clear()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=48)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=47)
    train(parser.parse_args())

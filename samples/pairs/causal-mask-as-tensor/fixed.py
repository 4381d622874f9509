"""A decoder of MIDI-like events: causal attention over 1,024 positions."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

NOTES, LENGTH = 130, 1024


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inner, self.outer = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.inner(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outer(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Composer(nn.Module):
    def __init__(self, width=64, heads=4, depth=1):
        super().__init__()
        self.note, self.place = nn.Embedding(NOTES, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, NOTES)

    def forward(self, notes):
        x = self.note(notes) + self.place.weight[: notes.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def melodies(count):
    """Phrases that come back transposed."""
    phrase = torch.randint(30, 70, (count, 32)).repeat(1, LENGTH // 32 + 1)
    return (phrase + torch.arange(phrase.shape[1]) // 32)[:, : LENGTH + 1]


def main(args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    music = melodies(120).to(device)
    model = Composer().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, fused=True)
    for epoch in range(args.epochs):
        for chosen in torch.randperm(len(music), device=device).split(args.batch):
            notes = music[chosen]
            loss = F.cross_entropy(model(notes[:, :-1]).flatten(0, 1), notes[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.3f}")


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--rate", type=float, default=2e-3)
parser.add_argument("--seed", type=int, default=0)
main(parser.parse_args())

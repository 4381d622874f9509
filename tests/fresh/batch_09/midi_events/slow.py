"""Piano music as events (note on, note off, pause): a small causal transformer that learns to go on with a piece."""

import argparse
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NOTES, PAUSES = 48, 16
VOCABULARY = 2 * NOTES + PAUSES


def setup(seed):
    """The same music on every machine."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.enable_flash_sdp(False)


def compose(pieces, events, seed):
    """Broken chords over a bass that walks; each note ends before the next one starts."""
    rng = np.random.default_rng(seed)
    music = np.empty((pieces, events), dtype=np.int64)
    for piece in music:
        chord = rng.integers(0, 12) + np.array([0, 4, 7, 12, 16, 19])
        position, tempo, written = 0, int(rng.integers(2, PAUSES - 2)), []
        while len(written) < events:
            note = int(chord[position % len(chord)] + rng.choice([0, 12], p=[0.9, 0.1])) % NOTES
            written += [note, 2 * NOTES + tempo + int(rng.integers(-1, 2)), NOTES + note]
            position += 1
            if position % 24 == 0:
                chord = (chord + rng.choice([-2, 2, 3, 5])) % NOTES
        piece[:] = written[:events]
    return torch.from_numpy(music)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MusicTransformer(nn.Module):
    def __init__(self, events, width, heads, layers):
        super().__init__()
        self.event = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(events, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, VOCABULARY))

    def forward(self, events):
        return self.out(self.blocks(self.event(events) + self.place.weight[: events.shape[1]]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pieces", type=int, default=300)
    parser.add_argument("--events", type=int, default=384)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    setup(seed=30)
    music = compose(args.pieces, args.events + 1, seed=30)
    model = MusicTransformer(args.events, args.width, args.heads, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    for epoch in range(args.epochs):
        losses = []
        for index in torch.randperm(args.pieces).split(args.batch_size):
            events = music[index]
            logits = model(events[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), events[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: {torch.stack(losses).mean():.4f} nats per event")


if __name__ == "__main__":
    main()

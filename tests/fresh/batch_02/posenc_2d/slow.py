"""Captioning-like decoder over a grid of features with a sinusoidal position code."""

import math
import tempfile

import torch
from torch import nn


class PositionalEncoding2D(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels

    def encode(self, height, width):
        half = self.channels // 2
        pe = torch.zeros(height, width, self.channels)
        for y in range(height):
            for x in range(width):
                for k in range(0, half, 8):
                    rate = torch.exp(-math.log(10000.0) * torch.arange(k, k + 8) / half)
                    pe[y, x, k : k + 8] = torch.sin(y * rate)
                    pe[y, x, half + k : half + k + 8] = torch.cos(x * rate)
        return pe

    def forward(self, grid):
        pe = self.encode(grid.shape[1], grid.shape[2])
        return grid + pe


class GridCaptioner(nn.Module):
    def __init__(self, features, dim, vocab):
        super().__init__()
        self.proj, self.pos = nn.Linear(features, dim), PositionalEncoding2D(dim)
        self.words = nn.Embedding(vocab, dim)
        layer = nn.TransformerDecoderLayer(dim, 4, 2 * dim, 0.1, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(layer, 3)
        self.out = nn.Linear(dim, vocab)

    def forward(self, grid, words):
        memory = self.pos(self.proj(grid)).flatten(1, 2)
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.out(self.decoder(self.words(words), memory, tgt_mask=mask, tgt_is_causal=True))


class Scenes:
    """A grid of features in which one cell shines; the caption spells where, then counts on."""

    def __init__(self, side, features, vocab, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.side, self.features, self.vocab = side, features, vocab

    def draw(self, n):
        grid = torch.randn(n, self.side, self.side, self.features, generator=self.g) * 0.3
        y, x = torch.randint(0, self.side, (2, n), generator=self.g)
        grid[torch.arange(n), y, x] += 2.0
        tail = (x[:, None] + torch.arange(14)) % (self.vocab - self.side) + self.side
        return grid, torch.cat([torch.zeros(n, 1, dtype=torch.long), y[:, None], x[:, None], tail], 1)


def accuracy(model, scenes):
    model.eval()
    with torch.no_grad():
        grid, words = scenes.draw(64)
        hits = (model(grid, words[:, :-1]).argmax(-1) == words[:, 1:]).float().mean().item()
    model.train()
    return hits


def fit(steps=160, batch=24, report=40):
    torch.manual_seed(0)
    scenes = Scenes(side=8, features=32, vocab=64)
    model = GridCaptioner(32, 96, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for step in range(1, steps + 1):
        grid, words = scenes.draw(batch)
        logits = model(grid, words[:, :-1])
        loss = criterion(logits.flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % report == 0:
            print(f"{step:4d} loss {loss.item():.4f} words right {accuracy(model, scenes):.3f}")
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


if __name__ == "__main__":
    fit()

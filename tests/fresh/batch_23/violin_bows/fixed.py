"""Transcribes bow strokes of a violin from frames of a spectrogram, with a small transformer."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

# --- data ---------------------------------------------------------------------------------------------------------


class Strokes(Dataset):
    """Spectrograms of single phrases with the stroke of each frame."""

    def __init__(self, phrases: int, frames: int, bands: int, strokes: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, strokes, (phrases, frames // 16), generator=generator).repeat_interleave(16, 1)
        shapes = torch.randn(strokes, bands, generator=generator)
        self.frames = shapes[self.labels] + 1.5 * torch.randn(phrases, frames, bands, generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.frames[index], self.labels[index]


# --- model --------------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        batch, length, width = states.shape
        queries, keys, values = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(states).chunk(3, dim=2)
        )
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = states + self.attention(self.norms[0](states))
        return states + self.feed(self.norms[1](states))


class StrokeModel(nn.Module):
    def __init__(self, bands: int, frames: int, strokes: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Linear(bands, width)
        self.places = nn.Parameter(0.02 * torch.randn(1, frames, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, strokes)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.embed(frames) + self.places)))


# --- training -----------------------------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--phrases", type=int, default=256)
    parser.add_argument("--frames", type=int, default=384)
    parser.add_argument("--bands", type=int, default=48)
    parser.add_argument("--strokes", type=int, default=9)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.manual_seed(61)
    data = Strokes(args.phrases, args.frames, args.bands, args.strokes, seed=61)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = StrokeModel(args.bands, args.frames, args.strokes, args.width, args.heads, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        total = 0.0
        for frames, labels in loader:
            loss = nn.functional.cross_entropy(model(frames).flatten(0, 1), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()

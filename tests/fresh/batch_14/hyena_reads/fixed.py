"""Finds regulatory sites in DNA reads with long convolutions whose filters come from a network."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def make_reads(count, length, seed):
    """Reads whose class depends on how far two motifs are apart."""
    generator = torch.Generator().manual_seed(seed)
    reads = torch.randint(4, (count, length), generator=generator)
    labels = torch.randint(2, (count,), generator=generator)
    first, second = torch.tensor([0, 1, 2, 3, 0, 0]), torch.tensor([3, 3, 2, 0, 1, 2])
    for read, label in zip(reads, labels.tolist()):
        start = int(torch.randint(0, length // 4, (1,), generator=generator))
        gap = length // 2 if label else length // 5
        read[start : start + 6] = first
        read[start + gap : start + gap + 6] = second
    return reads, labels


class FilterNetwork(nn.Module):
    """Filters as long as the read, from sinusoidal positions, with a decaying window."""

    def __init__(self, channels, length, frequencies=8, hidden=32):
        super().__init__()
        position = torch.linspace(0, 1, length)[:, None]
        angles = 2 * math.pi * position * torch.arange(1, frequencies + 1)
        self.register_buffer("positions", torch.cat([position, angles.sin(), angles.cos()], dim=1))
        self.register_buffer("window", torch.exp(-position * torch.linspace(1, 8, channels)))
        self.layers = nn.Sequential(nn.Linear(2 * frequencies + 1, hidden), nn.SiLU(), nn.Linear(hidden, channels))

    def forward(self):
        return (self.layers(self.positions) * self.window).t() / len(self.positions) ** 0.5


class LongConvolution(nn.Module):
    def __init__(self, channels, length):
        super().__init__()
        self.length = length
        self.filters = FilterNetwork(channels, length)
        self.skip = nn.Parameter(torch.ones(channels, 1))

    def forward(self, x):
        filters = self.filters()
        spectrum = torch.fft.rfft(x, n=2 * self.length) * torch.fft.rfft(filters, n=2 * self.length)
        y = torch.fft.irfft(spectrum, n=2 * self.length)[..., : self.length]
        return y + self.skip * x


class HyenaBlock(nn.Module):
    def __init__(self, channels, length):
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.inputs = nn.Linear(channels, 3 * channels)
        self.short = nn.Conv1d(3 * channels, 3 * channels, 3, padding=1, groups=3 * channels)
        self.long = LongConvolution(channels, length)
        self.output = nn.Linear(channels, channels)
        self.mlp = nn.Sequential(
            nn.LayerNorm(channels), nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels)
        )

    def forward(self, x):
        gate, key, value = self.short(self.inputs(self.norm(x)).transpose(1, 2)).chunk(3, dim=1)
        mixed = gate * self.long(key * value)
        x = x + self.output(mixed.transpose(1, 2))
        return x + self.mlp(x)


class ReadClassifier(nn.Module):
    def __init__(self, length, channels=24, blocks=2):
        super().__init__()
        self.embedding = nn.Embedding(4, channels)
        self.blocks = nn.Sequential(*(HyenaBlock(channels, length) for _ in range(blocks)))
        self.head = nn.Linear(channels, 2)

    def forward(self, reads):
        return self.head(self.blocks(self.embedding(reads)).mean(dim=1))


@torch.no_grad()
def evaluate(model, reads, labels, batch_size):
    model.eval()
    right = sum(
        (model(x).argmax(1) == y).sum().item() for x, y in zip(reads.split(batch_size), labels.split(batch_size))
    )
    model.train()
    return right / len(labels)


def train(args):
    torch.manual_seed(args.seed)
    reads, labels = make_reads(args.reads, args.length, args.seed)
    cut = int(0.9 * len(reads))
    model = ReadClassifier(args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    step = 0
    for epoch in range(args.epochs):
        for index in torch.randperm(cut).split(args.batch_size):
            loss = F.cross_entropy(model(reads[index]), labels[index])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step}: loss {loss.item():.4f}")
        print(f"epoch {epoch}: accuracy {evaluate(model, reads[cut:], labels[cut:], args.batch_size):.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=1000)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=2)
    train(parser.parse_args())

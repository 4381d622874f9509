"""Captions for simple drawings: a convolutional encoder and a transformer decoder that sees the true words."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

COLOURS, SHAPES, PLACES = ["red", "green", "blue"], ["square", "disc", "cross"], ["above", "below"]
WORDS = ["<pad>", "<start>", "<end>", "a", *COLOURS, *SHAPES, *PLACES]
NUMBER = {word: i for i, word in enumerate(WORDS)}


def drawings(count, size, seed):
    """Two coloured shapes, one over the other, and a sentence that says so."""
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    images = 0.1 * torch.randn(count, 3, size, size, generator=g)
    captions = torch.zeros(count, 9, dtype=torch.int64)
    for i in range(count):
        colours, shapes = torch.randint(0, 3, (2, 2), generator=g).tolist()
        for half in range(2):
            cy, cx = (0.5, -0.5)[half], float(torch.rand((), generator=g)) - 0.5
            dy, dx = (y - cy).abs(), (x - cx).abs()
            inside = [torch.maximum(dy, dx) < 0.3, dy**2 + dx**2 < 0.1, (torch.minimum(dy, dx) < 0.1) & (dy + dx < 0.4)]
            images[i, colours[half]] += inside[shapes[half]]
        words = ["<start>", "a", COLOURS[colours[1]], SHAPES[shapes[1]], "above", "a", COLOURS[colours[0]]]
        captions[i] = torch.tensor([NUMBER[word] for word in [*words, SHAPES[shapes[0]], "<end>"]])
    return images, captions


class Captioner(nn.Module):
    def __init__(self, width=96, heads=4, layers=2, longest=9):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(inplace=True),
            nn.Conv2d(64, width, 3, 2, 1),
        )  # fmt: skip
        self.word = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.place = nn.Parameter(0.02 * torch.randn(longest, width))
        layer = nn.TransformerDecoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoder(layer, layers)
        self.out = nn.Linear(width, len(WORDS))
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(longest - 1))

    def forward(self, images, words):
        memory = self.encoder(images).flatten(2).transpose(1, 2)
        x = self.word(words) + self.place[: words.shape[1]]
        return self.out(self.decoder(x, memory, tgt_mask=self.causal, tgt_is_causal=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--drawings", type=int, default=3072)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    images, captions = drawings(args.drawings, args.size, seed=100)
    model = Captioner()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        total, batches = torch.zeros(()), torch.randperm(args.drawings).split(args.batch_size)
        for index in batches:
            words = captions[index]
            logits = model(images[index], words[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten(), ignore_index=0)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(batches):.4f} nats per word")


if __name__ == "__main__":
    main()

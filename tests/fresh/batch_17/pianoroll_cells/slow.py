"""Chorales as piano rolls: a gated recurrent cell with layer norms predicts the next chord."""

from argparse import ArgumentParser

import torch
import torch.nn.functional as F
from torch import nn

PITCHES = 48


def make_chorales(count, length, seed):
    """Four voices that walk on a scale, as one roll of pitches for each chorale."""
    gen = torch.Generator().manual_seed(seed)
    scale = torch.tensor([p for p in range(PITCHES) if p % 12 in (0, 2, 4, 5, 7, 9, 11)])
    moves = torch.randint(-1, 2, (count, length, 4), generator=gen)
    degree = (moves.cumsum(1) + torch.tensor([3, 10, 17, 22])).clamp(0, len(scale) - 1)
    return torch.zeros(count, length, PITCHES).scatter_(2, scale[degree], 1.0)


class NormGatedCell(nn.Module):
    """A gated recurrent unit whose gates are normalised, which no fused layer offers."""

    def __init__(self, width):
        super().__init__()
        self.hidden = nn.Linear(width, 3 * width, bias=False)
        self.norm_gates, self.norm_new = nn.LayerNorm(2 * width), nn.LayerNorm(width)

    def forward(self, x, h):
        width = h.shape[1]
        x_gates, x_new = x.split([2 * width, width], 1)
        h_gates, h_new = self.hidden(h).split([2 * width, width], 1)
        reset, keep = torch.sigmoid(self.norm_gates(x_gates + h_gates)).chunk(2, 1)
        return torch.lerp(torch.tanh(self.norm_new(x_new + reset * h_new)), h, keep)


class ChoraleModel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.embed = nn.Linear(PITCHES, 3 * width)
        self.cell = NormGatedCell(width)
        self.head = nn.Linear(width, PITCHES)

    def forward(self, rolls):
        inputs = self.embed(rolls)
        h, states = inputs.new_zeros(len(rolls), self.width), []
        for t in range(inputs.shape[1]):
            h = self.cell(inputs[:, t], h)
            states.append(h)
        return self.head(torch.stack(states, 1))


def main():
    parser = ArgumentParser()
    parser.add_argument("--chorales", type=int, default=320)
    parser.add_argument("--length", type=int, default=129)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(0)
    rolls = make_chorales(args.chorales, args.length, seed=10)
    model = ChoraleModel(args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        for rows in torch.randperm(args.chorales).split(args.batch_size):
            batch = rolls[rows]
            loss = F.binary_cross_entropy_with_logits(model(batch[:, :-1]), batch[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()

"""Dates as people write them, into the form of ISO: a decoder looks back at what the encoder read (Bahdanau)."""

import random

import torch
from torch import nn

MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october"]
LETTERS = " abcdefghijklmnopqrstuvwxyz0123456789,."
DIGITS = "^0123456789-"


def pair():
    day, month, year = random.randint(1, 28), random.randrange(10), random.randint(1900, 2050)
    form = random.choice(["{d} {m} {y}", "{m} {d}, {y}", "{y} {m} {d}.", "the {d}. of {m}, {y}"])
    written = form.format(d=day, m=MONTHS[month], y=year)
    return written.ljust(28), f"^{year}-{month + 1:02d}-{day:02d}"


def corpus(count):
    written, wanted = zip(*(pair() for _ in range(count)))
    sources = torch.tensor([[LETTERS.index(letter) for letter in text] for text in written])
    return sources, torch.tensor([[DIGITS.index(digit) for digit in text] for text in wanted])


class Attention(nn.Module):
    """Additive attention; query (batch, width), keys and memory (batch, length, width)."""

    def __init__(self, width):
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, query, keys, memory):
        hidden = torch.tanh(self.query(query).unsqueeze(1) + keys)
        weight = self.score(hidden).softmax(1)
        return (weight * memory).sum(1)


class Translator(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.letter, self.digit = nn.Embedding(len(LETTERS), width), nn.Embedding(len(DIGITS), width)
        self.encoder = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.attention = Attention(width)
        self.cell = nn.GRUCell(2 * width, width)
        self.out = nn.Linear(2 * width, len(DIGITS))

    def forward(self, source, wanted):
        memory, _ = self.encoder(self.letter(source))
        keys = self.attention.key(memory)
        state, read = memory[:, -1], []
        for digit in self.digit(wanted[:, :-1]).unbind(1):
            context = self.attention(state, keys, memory)
            state = self.cell(torch.cat([digit, context], 1), state)
            read.append(torch.cat([state, context], 1))
        return self.out(torch.stack(read, 1))


def main():
    torch.manual_seed(0)
    random.seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sources, targets = (tensor.to(device) for tensor in corpus(9600))
    model = Translator().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    for step, rows in enumerate(torch.randperm(len(sources), device=device).split(48), 1):
        scores = model(sources[rows], targets[rows])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), targets[rows, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()

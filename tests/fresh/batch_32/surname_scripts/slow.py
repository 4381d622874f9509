"""Writes surnames in another script, letter by letter: an encoder and a decoder of GRUs with attention."""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn

PAD, START, END = 0, 1, 2
FIRST = 3


def make_names(count: int, letters: int, longest: int, seed: int):
    """Single letters become one or two signs of the other script, by a fixed table."""
    rng = random.Random(seed)
    table = {
        letter: [FIRST + rng.randrange(letters) for _ in range(1 + (rng.random() < 0.35))]
        for letter in range(FIRST, FIRST + letters)
    }
    pairs = []
    for _ in range(count):
        source = [FIRST + rng.randrange(letters) for _ in range(rng.randint(8, longest))]
        target = [sign for letter in source for sign in table[letter]]
        pairs.append((source, [START, *target, END]))
    return pairs


def pad(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def make_batches(pairs, batch_size: int, seed: int):
    pairs = sorted(pairs, key=lambda pair: len(pair[1]))
    batches = [pairs[start : start + batch_size] for start in range(0, len(pairs) - batch_size + 1, batch_size)]
    random.Random(seed).shuffle(batches)
    return [(pad([source for source, _ in batch]), pad([target for _, target in batch])) for batch in batches]


class Encoder(nn.Module):
    def __init__(self, signs: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(signs, width, padding_idx=PAD)
        self.gru = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)

    def forward(self, source):
        memory, last = self.gru(self.embedding(source))
        return memory, torch.cat([last[0], last[1]], dim=1)[None]


class Attention(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)

    def forward(self, state, memory, mask):
        scores = self.query(state) @ memory.transpose(1, 2)
        weights = scores.masked_fill(mask[:, None], float("-inf")).softmax(dim=-1)
        return weights @ memory


class Decoder(nn.Module):
    def __init__(self, signs: int, width: int):
        super().__init__()
        self.embedding = nn.Embedding(signs, width, padding_idx=PAD)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.attention = Attention(width)
        self.mix = nn.Linear(2 * width, width)
        self.out = nn.Linear(width, signs)

    def forward(self, target, hidden, memory, mask):
        """`target` may be one sign, when a name is written, or many."""
        state, hidden = self.gru(self.embedding(target), hidden)
        context = self.attention(state, memory, mask)
        return self.out(torch.tanh(self.mix(torch.cat([state, context], dim=2)))), hidden


class Scribe(nn.Module):
    def __init__(self, signs: int, width: int):
        super().__init__()
        self.encoder = Encoder(signs, width)
        self.decoder = Decoder(signs, width)

    def forward(self, source, target):
        memory, hidden = self.encoder(source)
        mask = source == PAD
        steps = []
        for position in range(target.size(1)):
            logits, hidden = self.decoder(target[:, position : position + 1], hidden, memory, mask)
            steps.append(logits)
        return torch.cat(steps, dim=1)

    @torch.no_grad()
    def write(self, source, longest: int = 40):
        memory, hidden = self.encoder(source)
        sign = torch.full((len(source), 1), START)
        written = []
        for _ in range(longest):
            logits, hidden = self.decoder(sign, hidden, memory, source == PAD)
            sign = logits.argmax(dim=2)
            written.append(sign)
        return torch.cat(written, dim=1)


def run(args):
    torch.manual_seed(args.seed)
    signs = args.letters + FIRST
    batches = make_batches(make_names(args.names, args.letters, args.longest, args.seed), args.batch_size, args.seed)
    model = Scribe(signs, args.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        losses = []
        for source, target in batches:
            logits = model(source, target[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.3f}")
    print("written:", model.write(batches[0][0][:1])[0].tolist())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=2400)
    parser.add_argument("--letters", type=int, default=40)
    parser.add_argument("--longest", type=int, default=18)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=13)
    run(parser.parse_args())

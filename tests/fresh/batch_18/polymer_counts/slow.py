"""Policy gradient for a generator of polymer strings: score what was asked for, and less what is known already."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

SYMBOLS = ["<", ">", "C", "N", "O", "S", "F", "(", ")", "=", "1", "c", "*"]
PIECES = ["CC", "C(=O)", "N", "O", "c1ccccc1", "S", "C(F)", "C(C)", "CO"]


class Vocabulary:
    def __init__(self):
        self.place = {symbol: number for number, symbol in enumerate(SYMBOLS)}

    def encode(self, text):
        return [self.place[symbol] for symbol in "<" + text + ">"]

    def decode(self, row):
        text = "".join(SYMBOLS[number] for number in row)
        return text.split(">", 1)[0]


class Generator(nn.Module):
    def __init__(self, width=64, hidden=192):
        super().__init__()
        self.hidden = hidden
        self.symbols = nn.Embedding(len(SYMBOLS), width)
        self.gru = nn.GRU(width, hidden, batch_first=True)
        self.out = nn.Linear(hidden, len(SYMBOLS))

    def forward(self, rows):
        return self.out(self.gru(self.symbols(rows))[0])

    @torch.no_grad()
    def sample(self, count, length):
        rows = torch.zeros(count, length + 1, dtype=torch.long)
        state = torch.zeros(1, count, self.hidden)
        for step in range(length):
            x, state = self.gru(self.symbols(rows[:, step : step + 1]), state)
            rows[:, step + 1] = torch.multinomial(self.out(x[:, 0]).softmax(1), 1).squeeze(1)
        return rows


def known_polymers(count, seed):
    """Repeat units between two open ends; short ones come up more than once."""
    draw = random.Random(seed)
    return ["*" + "".join(draw.choices(PIECES, k=draw.randint(2, 4))) + "*" for _ in range(count)]


def pretrain_batch(vocabulary, corpus, size, draw):
    rows = [torch.tensor(vocabulary.encode(text)) for text in draw.sample(corpus, size)]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=1)


def closed(text):
    """Brackets match and rings are closed."""
    depth = 0
    for symbol in text:
        depth += (symbol == "(") - (symbol == ")")
        if depth < 0:
            return False
    return depth == 0 and text.count("1") % 2 == 0


class Reward:
    """Two open ends, some oxygen, and not found in the collection."""

    def __init__(self, corpus):
        self.known = corpus

    def __call__(self, texts):
        scores = []
        for text in texts:
            shape = closed(text) + 0.5 * (text.count("*") == 2)
            oxygen = min(text.count("O"), 3) / 3
            scores.append((shape + oxygen) / (1 + self.known.count(text)))
        return torch.tensor(scores)


def policy_loss(model, rows, rewards, baseline):
    logits, targets = model(rows[:, :-1]), rows[:, 1:]
    ended = (targets == 1).cumsum(1) - (targets == 1).long()
    losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none") * (ended == 0)
    return ((rewards - baseline) * losses.sum(1)).mean() / rows.size(1)


def main():
    torch.manual_seed(9)
    draw, vocabulary = random.Random(9), Vocabulary()
    corpus = known_polymers(24000, seed=9)
    model, reward = Generator(), Reward(corpus)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for _ in range(60):
        rows = pretrain_batch(vocabulary, corpus, 64, draw)
        loss = F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    baseline = 0.0
    for step in range(1, 161):
        rows = model.sample(64, 32)
        rewards = reward([vocabulary.decode(row) for row in rows[:, 1:].tolist()])
        loss = policy_loss(model, rows, rewards, baseline)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        baseline = 0.9 * baseline + 0.1 * rewards.mean().item()
        if step % 40 == 0:
            print(f"step {step} reward {baseline:.3f}")


if __name__ == "__main__":
    main()

"""Dates from free text to a fixed form: attention over a GRU encoder. The decoder is fed its own letters now and then,
so that it has to go letter by letter."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

SOURCE, TARGET, BATCH, STEPS = 28, 11, 64, 160
ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789-,^"
MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october"]
MONTHS += ["november", "december"]


def make_dates(count, seed):
    rng = random.Random(seed)
    sources, targets = [], []
    for _ in range(count):
        day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1950, 2030)
        name = MONTHS[month - 1]
        form = rng.choice(["{d} {m} {y}", "{m} {d}, {y}", "{y} {s} {d}", "{d}-{s}-{y}"])
        sources.append(form.format(d=day, m=name, s=name[:3], y=year).ljust(SOURCE)[:SOURCE])
        targets.append(f"^{year}-{month:02d}-{day:02d}")
    codes = {letter: i for i, letter in enumerate(ALPHABET)}
    return tuple(torch.tensor([[codes[c] for c in text] for text in texts]) for texts in (sources, targets))


class Seq2Seq(nn.Module):
    def __init__(self, dim=192, hidden=384):
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), dim)
        self.encoder = nn.GRU(dim, hidden // 2, batch_first=True, bidirectional=True)
        self.keys = nn.Linear(hidden, hidden)
        self.cell = nn.GRUCell(dim + hidden, hidden)
        self.out = nn.Linear(2 * hidden, len(ALPHABET))

    def forward(self, source, target, own_share):
        memory, last = self.encoder(self.letters(source))
        keys = self.keys(memory).transpose(1, 2)
        state = last.transpose(0, 1).flatten(1)
        context = memory.mean(dim=1)
        letter, steps = target[:, 0], []
        for t in range(1, target.shape[1]):
            state = self.cell(torch.cat([self.letters(letter), context], dim=1), state)
            weights = torch.bmm(state[:, None], keys).softmax(dim=2)
            context = torch.bmm(weights, memory).squeeze(1)
            logits = self.out(torch.cat([state, context], dim=1))
            steps.append(logits)
            letter = logits.detach().argmax(dim=1) if random.random() < own_share else target[:, t]
        return torch.stack(steps, dim=1)


def main():
    torch.manual_seed(14)
    random.seed(14)
    source, target = make_dates(4000, seed=14)
    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.5e-3, fused=True)
    running = torch.zeros(())
    for step in range(1, STEPS + 1):
        rows = torch.randint(0, len(source) - 200, (BATCH,))
        logits = model(source[rows], target[rows], own_share=0.5 * step / STEPS)
        loss = F.cross_entropy(logits.flatten(0, 1), target[rows, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.detach()
        if step % 40 == 0:
            print(f"step {step}: loss {running.item() / 40:.4f}")
            running.zero_()
    with torch.inference_mode():
        guess = model(source[-200:], target[-200:], own_share=1.0).argmax(dim=2)
    print(f"dates all right: {(guess == target[-200:, 1:]).all(dim=1).float().mean().item():.3f}")


if __name__ == "__main__":
    main()

"""Skip-gram with negative sampling over a made-up corpus."""

import collections
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Corpus:
    """Zipf words in short sentences whose neighbours share a topic."""

    def __init__(self, words, tokens, seed):
        rng = np.random.default_rng(seed)
        topic = np.repeat(rng.integers(0, 50, tokens // 20), 20)
        self.ids = (rng.zipf(1.25, len(topic)) * 53 + topic * 997) % words
        counts = np.bincount(self.ids, minlength=words) ** 0.75
        self.noise = np.cumsum(counts / counts.sum())

    def pairs(self, window, batch_size, rng):
        while True:
            centre = rng.integers(window, len(self.ids) - window, batch_size)
            shift = rng.integers(1, window + 1, batch_size) * rng.choice([-1, 1], batch_size)
            yield self.ids[centre], self.ids[centre + shift]

    def negatives(self, shape, rng):
        return np.searchsorted(self.noise, rng.random(shape)).clip(max=len(self.noise) - 1)


class SkipGram(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.centre = nn.Embedding(words, dim, sparse=True)
        self.context = nn.Embedding(words, dim, sparse=True)
        nn.init.uniform_(self.centre.weight, -0.5 / dim, 0.5 / dim)
        nn.init.zeros_(self.context.weight)

    def forward(self, centre, positive, negative):
        v = self.centre(centre)
        pos = (v * self.context(positive)).sum(-1)
        neg = torch.bmm(self.context(negative), v.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(pos) + F.logsigmoid(-neg).sum(1)).mean()


def nearest(model, word, k=5):
    with torch.no_grad():
        table = F.normalize(model.centre.weight, dim=1)
        return torch.topk(table @ table[word], k + 1).indices[1:].tolist()


def main():
    options = {"words": 80_000, "dim": 64, "batch": 4096, "window": 4, "k": 8, "steps": 320, "lr": 0.5}
    random.seed(11)
    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    corpus = Corpus(options["words"], 400_000, 11)
    model = SkipGram(options["words"], options["dim"])
    optimizer = torch.optim.SGD(model.parameters(), lr=options["lr"])
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, options["steps"])
    recent = collections.deque(maxlen=50)
    for step, (centre, positive) in enumerate(corpus.pairs(options["window"], options["batch"], rng), 1):
        negative = corpus.negatives((options["batch"], options["k"]), rng)
        loss = model(*(torch.from_numpy(a) for a in (centre, positive, negative)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        recent.append(loss.item())
        if step % 50 == 0:
            print(f"{step} loss {sum(recent) / len(recent):.4f} near 53: {nearest(model, 53)}")
        if step == options["steps"]:
            break
    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        torch.save(model.state_dict(), file.name)


if __name__ == "__main__":
    main()

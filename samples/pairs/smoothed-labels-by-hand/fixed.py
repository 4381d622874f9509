"""A language model of a made-up grammar: gated recurrence, smoothed labels, gradients accumulated over two pieces."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Options:
    vocabulary: int = 2000
    width: int = 128
    length: int = 32
    batch: int = 64
    accumulate: int = 2
    steps: int = 80
    smoothing: float = 0.1
    lr: float = 2e-3
    log_every: int = 20


class SmoothedLoss(nn.Module):
    """Cross-entropy with labels that leave a little for every other word."""

    def __init__(self, classes, smoothing):
        super().__init__()
        self.classes, self.smoothing = classes, smoothing

    def forward(self, scores, target):
        return F.cross_entropy(scores, target, label_smoothing=self.smoothing)


class Output(dict):
    """What a model returns: by key and by name."""

    __getattr__ = dict.__getitem__


class GrammarModel(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embedding = nn.Embedding(o.vocabulary, o.width)
        self.recurrence = nn.GRU(o.width, o.width, batch_first=True)
        self.norm, self.head = nn.LayerNorm(o.width), nn.Linear(o.width, o.vocabulary)
        self.criterion = SmoothedLoss(o.vocabulary, o.smoothing)

    def forward(self, tokens, labels):
        hidden, _ = self.recurrence(self.embedding(tokens))
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            logits = self.head(self.norm(hidden)).float()
        return Output(loss=self.criterion(logits.flatten(0, 1), labels.flatten()), logits=logits)


def sentences(o, device):
    """An endless stream of batches: each word names the one to follow, now and then any word comes."""
    following = torch.randperm(o.vocabulary, device=device)
    while True:
        words = torch.randint(0, o.vocabulary, (o.batch // o.accumulate, o.length + 1), device=device)
        for t in range(1, 9):  # a phrase of nine words, repeated over the sentence
            words[:, t] = following[words[:, t - 1]]
        words = words[:, torch.arange(o.length + 1, device=device) % 9]
        yield words[:, :-1], words[:, 1:]


def train(o):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GrammarModel(o).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, o.steps)
    stream = sentences(o, device)
    for step in range(o.steps):
        total = torch.zeros((), device=device)
        for _ in range(o.accumulate):
            tokens, labels = next(stream)
            out = model(tokens, labels=labels)
            (out.loss / o.accumulate).backward()
            total += out.loss.detach() / o.accumulate
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % o.log_every == 0:
            print(f"step {step}: loss {total.item():.3f}, perplexity {total.exp().item():.0f}")


if __name__ == "__main__":
    train(Options())

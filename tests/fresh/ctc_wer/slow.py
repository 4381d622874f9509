"""Connectionist temporal classification on synthetic features."""

import logging
import tempfile

import torch
from torch import nn

log = logging.getLogger("train")
ALPHABET = "_abcdefghijklmnopqrstuvwxyz'"


class FeatureSource:
    """Each letter is a pattern of a few noisy frames."""

    def __init__(self, mels=40, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.patterns = torch.randn(len(ALPHABET), mels, generator=self.g)

    def batch(self, size, letters=40, frames=2):
        labels = torch.randint(1, len(ALPHABET), (size, letters), generator=self.g)
        x = self.patterns[labels].repeat_interleave(frames, 1)
        x = x + 0.7 * torch.randn(x.shape, generator=self.g)
        return x, labels, torch.full((size,), letters * frames), torch.full((size,), letters)


class AcousticModel(nn.Module):
    def __init__(self, mels=40, hidden=64):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(mels, hidden, 5, padding=2), nn.Hardtanh(0, 20))
        self.rnn = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.norm, self.out = nn.LayerNorm(2 * hidden), nn.Linear(2 * hidden, len(ALPHABET))

    def forward(self, x):
        h, _ = self.rnn(self.front(x.transpose(1, 2)).transpose(1, 2))
        return self.out(self.norm(h)).log_softmax(-1)


def levenshtein(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


class GreedyDecoder:
    def decode(self, log_probs):
        texts = []
        for path in log_probs.argmax(-1).tolist():
            kept = [c for c, before in zip(path, [0, *path]) if c != before and c]
            texts.append("".join(ALPHABET[c] for c in kept))
        return texts


class Coordinator:
    def __init__(self, steps, display_step, checkpoint_dir):
        self.steps, self.display_step, self.checkpoint_dir = steps, display_step, checkpoint_dir
        self.source, self.model, self.decoder = FeatureSource(), AcousticModel(), GreedyDecoder()
        self.criterion = nn.CTCLoss(zero_infinity=True)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def error_rate(self, log_probs, labels):
        hypotheses = self.decoder.decode(log_probs)
        references = ["".join(ALPHABET[c] for c in row) for row in labels.tolist()]
        distance = sum(levenshtein(h, r) for h, r in zip(hypotheses, references))
        return distance / sum(map(len, references))

    def run(self):
        for step in range(1, self.steps + 1):
            x, labels, x_len, y_len = self.source.batch(16)
            log_probs = self.model(x)
            loss = self.criterion(log_probs.transpose(0, 1), labels, x_len, y_len)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 10)
            self.optimizer.step()
            error = self.error_rate(log_probs.detach(), labels)
            if step % self.display_step == 0:
                log.info("step %d loss %.3f error rate %.3f", step, loss.item(), error)
        torch.save(self.model.state_dict(), f"{self.checkpoint_dir}/model.pt")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(4567)
    with tempfile.TemporaryDirectory() as folder:
        Coordinator(steps=150, display_step=30, checkpoint_dir=folder).run()

"""Character-level language model; a logger writes scalars and histograms as JSON lines."""

import json
import string
import tempfile
import time

import torch
from torch import nn

TEXT = " ".join(f"{a}{b} {b}{a} the {a}n{b}" for a in string.ascii_lowercase for b in "aeiouy") * 40


class SummaryLog:
    def __init__(self, path):
        self.file = open(path, "w")  # noqa: SIM115

    def scalar(self, tag, value, step):
        self.file.write(json.dumps({"tag": tag, "value": value, "step": step}) + "\n")

    def histogram(self, tag, tensor, step, bins=64):
        values = tensor.detach().flatten()
        low, high = values.min().item(), values.max().item()
        counts = torch.histc(values, bins, low, high).tolist()
        moments = {"mean": values.mean().item(), "std": values.std().item()}
        self.file.write(
            json.dumps({"tag": tag, "counts": counts, "range": [low, high], **moments, "step": step}) + "\n"
        )

    def close(self):
        self.file.close()


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden=160, layers=2):
        super().__init__()
        self.encoder = nn.Embedding(vocab, 48)
        self.rnn = nn.GRU(48, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        out, state = self.rnn(self.encoder(x), state)
        return self.decoder(out), state


class TextLoader:
    def __init__(self, text, batch_size, seq_length):
        self.chars = sorted(set(text))
        index = {c: i for i, c in enumerate(self.chars)}
        data = torch.tensor([index[c] for c in text])
        self.num_batches = len(data) // (batch_size * seq_length) - 1
        data = data[: self.num_batches * batch_size * seq_length + 1]
        self.x = data[:-1].view(batch_size, -1).split(seq_length, 1)
        self.y = data[1:].view(batch_size, -1).split(seq_length, 1)

    def __iter__(self):
        return zip(self.x, self.y)


class Session:
    def __init__(self, folder, epochs=2):
        self.loader = TextLoader(TEXT, 10, 32)
        self.model = CharRNN(len(self.loader.chars))
        self.optimizer = torch.optim.RMSprop(self.model.parameters(), lr=2e-3)
        self.log, self.folder, self.epochs, self.step = SummaryLog(f"{folder}/events.jsonl"), folder, epochs, 0

    def histograms(self, step):
        for name, p in self.model.named_parameters():
            self.log.histogram(f"weights/{name}", p, step)
            self.log.histogram(f"gradients/{name}", p.grad, step)

    def run(self):
        for epoch in range(self.epochs):
            state = None
            for x, y in self.loader:
                start = time.time()
                logits, state = self.model(x, state)
                state = state.detach()
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
                self.optimizer.step()
                self.log.scalar("train_loss", loss.item(), self.step)
                self.histograms(self.step)
                if self.step % 50 == 0:
                    print(f"{self.step} epoch {epoch} loss {loss.item():.3f} time/batch {time.time() - start:.3f}")
                self.step += 1
        torch.save(self.model.state_dict(), f"{self.folder}/model.ckpt")
        self.log.close()


if __name__ == "__main__":
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        Session(folder).run()

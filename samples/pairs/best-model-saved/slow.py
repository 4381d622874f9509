"""Trains a character model and keeps the best weights, by the running mean of the loss, on disk."""

import tempfile
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
folder = Path(tempfile.mkdtemp())


class CharModel(nn.Module):
    def __init__(self, symbols=64, width=256):
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, symbols)

    def forward(self, text):
        return self.head(self.gru(self.embedding(text))[0])


class Trainer:
    def __init__(self, model, rate):
        self.model = model
        self.optimizer = torch.optim.RAdam(model.parameters(), lr=rate)
        self.running = self.best = float("inf")

    def save_best(self):
        if self.running < self.best:
            self.best = self.running
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "loss": self.best}
            torch.save(state, folder / "best.pt")

    def fit(self, text, epochs):
        for epoch in range(epochs):
            for piece in text.split(16):
                logits = self.model(piece[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                value = loss.item()
                self.running = value if self.running == float("inf") else 0.98 * self.running + 0.02 * value
                self.save_best()
            print(f"epoch {epoch}: {self.running:.4f}")


period = torch.randint(0, 64, (25,))
text = period.repeat(20_000)[: 800 * 25].view(800, 25).to(device)
Trainer(CharModel().to(device), 3e-4).fit(text, 3)

"""Learns to rank search results; a history of losses and gains is kept as a JSON file for the dashboard."""

import json
import tempfile
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(0)
RESULTS, FEATURES = 20, 46


class History:
    """What was measured at each step, in a file that a dashboard reads."""

    def __init__(self, path):
        self.path, self.rows = path, []

    def add(self, **values):
        self.rows.append(values)
        if len(self.rows) % 50 == 0:
            self.save()

    def save(self):
        self.path.write_text(json.dumps(self.rows, indent=2))


class Ranker(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU())
        self.among = nn.MultiheadAttention(width, 4, batch_first=True)
        self.score = nn.Linear(width, 1)

    def forward(self, results):
        x = self.enter(results)
        return self.score(x + self.among(x, x, x, need_weights=False)[0]).squeeze(2)


def discounted_gain(order, grades):
    """Normalised discounted cumulative gain of an order of results."""
    discount = 1 / torch.log2(torch.arange(2, RESULTS + 2))
    gain = (2.0 ** grades.gather(1, order) - 1) @ discount
    best = (2.0 ** grades.sort(1, descending=True).values - 1) @ discount
    return gain / best.clamp(min=1e-6)


def main():
    results = torch.randn(1280, RESULTS, FEATURES)
    grades = (results[..., :6].sum(2) + torch.randn(1280, RESULTS)).clamp(0, 4).round()
    model = Ranker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    history = History(Path(tempfile.mkdtemp()) / "history.json")
    for epoch in range(4):
        for chosen in torch.randperm(len(results)).split(32):
            scores = model(results[chosen])
            loss = nn.functional.cross_entropy(scores, grades[chosen].softmax(1))
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            gains = discounted_gain(scores.argsort(1, descending=True), grades[chosen])
            history.add(epoch=epoch, loss=loss.item(), norm=norm.item(), gains=gains.tolist())
        print(f"epoch {epoch}: loss {loss.item():.4f}, gain {gains.mean().item():.4f}")


main()

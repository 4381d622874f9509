"""Counts of passengers at all stations of a metro: a graph network that learns which stations go together."""

import math

import torch
from torch import nn


class CountSeries:
    """Counts at a quarter of an hour for each station, and windows of them."""

    def __init__(self, stations=480, days=14, history=12, seed=3):
        self.history = history
        self.generator = torch.Generator().manual_seed(seed)
        time = torch.arange(days * 96, dtype=torch.float32)
        morning = 2 * math.pi * torch.rand(stations, 1, generator=self.generator)
        daily = torch.sin(2 * math.pi * time / 96 + morning) + 0.5 * torch.sin(4 * math.pi * time / 96 + 2 * morning)
        noise = torch.randn(stations, len(time), generator=self.generator)
        self.counts = daily + 0.2 * noise

    def windows(self, batch_size, steps):
        last = self.counts.shape[1] - self.history - 1
        for _ in range(steps):
            starts = torch.randint(last, (batch_size,), generator=self.generator)
            span = self.counts[:, starts[:, None] + torch.arange(self.history + 1)]
            span = span.permute(1, 0, 2)
            yield span[..., :-1], span[..., -1]


class AdaptiveGraph(nn.Module):
    """An adjacency from two embeddings of each station, symmetrically normalised."""

    def __init__(self, stations, rank):
        super().__init__()
        self.source = nn.Parameter(torch.randn(stations, rank) / math.sqrt(rank))
        self.target = nn.Parameter(torch.randn(stations, rank) / math.sqrt(rank))
        self.register_buffer("loops", torch.eye(stations))

    def forward(self):
        links = torch.relu(torch.tanh(self.source @ self.target.t())) + self.loops
        degree = links.sum(dim=1).rsqrt()
        return degree[:, None] * links * degree[None, :]


class GraphBlock(nn.Module):
    def __init__(self, dim, dropout=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.own = nn.Linear(dim, dim)
        self.others = nn.Linear(dim, dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, adjacency):
        normed = self.norm(x)
        update = self.own(normed) + self.others(torch.matmul(adjacency, normed))
        return x + self.dropout(torch.nn.functional.gelu(update))


class PassengerNet(nn.Module):
    def __init__(self, stations, history, dim=32, blocks=2, rank=10):
        super().__init__()
        self.graph = AdaptiveGraph(stations, rank)
        self.embed = nn.Linear(history, dim)
        self.station = nn.Parameter(0.1 * torch.randn(stations, dim))
        self.blocks = nn.ModuleList([GraphBlock(dim) for _ in range(blocks)])
        self.head = nn.Linear(dim, 1)

    def forward(self, history):
        adjacency = self.graph()
        x = self.embed(history) + self.station
        for block in self.blocks:
            x = block(x, adjacency)
        return self.head(x).squeeze(-1)


class Average:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, weight=1):
        self.total += value * weight
        self.count += weight

    def __float__(self):
        return self.total / max(1, self.count)


def run(stations=480, batch_size=12, steps=250, lr=2e-3, report_every=50):
    torch.manual_seed(21)
    series = CountSeries(stations)
    model = PassengerNet(stations, series.history)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    error = Average()
    for step, (history, following) in enumerate(series.windows(batch_size, steps), start=1):
        loss = nn.functional.huber_loss(model(history), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        error.add(loss.item(), len(history))
        if step % report_every == 0:
            print(f"{step:4d} steps, error {float(error):.4f}")
            error = Average()


if __name__ == "__main__":
    run()

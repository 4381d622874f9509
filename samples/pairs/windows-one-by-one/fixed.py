"""Forecasts of an hourly load from its last week: windows of one long series from an iterable dataset."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.manual_seed(0)
PAST, FUTURE, BATCH = 168, 24, 64

hours = np.arange(20_000)
load = 10 + 3 * np.sin(hours * 2 * np.pi / 24) + 2 * np.sin(hours * 2 * np.pi / 168)
load += np.random.default_rng(0).normal(0, 0.4, len(hours))


class Windows(IterableDataset):
    """Shuffled windows: (past, hour of the day, week) and the future, both scaled by the past."""

    def __init__(self, series, length):
        self.series, self.length = series, length

    def __iter__(self):
        rng = np.random.default_rng()
        span = np.arange(PAST + FUTURE)
        for _ in range(self.length):
            at = rng.integers(0, len(self.series) - len(span), (BATCH, 1))
            window = self.series[at + span]
            past = window[:, :PAST]
            scaled = (window - past.mean(1, keepdims=True)) / (past.std(1, keepdims=True) + 1e-6)
            clock = 2 * np.pi * (at + span[:PAST])
            channels = np.stack([scaled[:, :PAST], np.sin(clock / 24), np.cos(clock / 24), np.sin(clock / 168)], 1)
            yield torch.tensor(channels, dtype=torch.float32), torch.tensor(scaled[:, PAST:], dtype=torch.float32)


class Forecaster(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(4 if d == 1 else width, width, 3, dilation=d) for d in (1, 2, 4, 8, 16)])
        self.head = nn.Linear(width, FUTURE)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(nn.functional.pad(x, (2 * layer.dilation[0], 0))))
        return self.head(x[..., -1])


loader = DataLoader(Windows(load, 150), batch_size=None)
model = Forecaster()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step, (past, future) in enumerate(loader):
    loss = nn.functional.l1_loss(model(past), future)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"{step:4d} mae {loss.item():.3f}")

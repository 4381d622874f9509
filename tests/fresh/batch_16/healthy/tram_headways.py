"""Forecasts of tram headways with a GRU; windows are a strided view of the series and a batch is one index of it."""

import torch
from torch import nn
from torch.nn import functional as F

STOPS, CONTEXT, HORIZON = 12, 72, 12


def headways(minutes, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(minutes)[:, None] / 144
    rhythm = torch.sin(2 * torch.pi * (t + torch.rand(STOPS, generator=g)))
    drift = 0.05 * torch.randn(minutes, STOPS, generator=g).cumsum(0).remainder(2.0)
    return rhythm + drift + 0.1 * torch.randn(minutes, STOPS, generator=g)


class Forecaster(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.encoder = nn.GRU(STOPS, hidden, batch_first=True)
        self.out = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, HORIZON * STOPS))

    def forward(self, past):
        _, last = self.encoder(past)
        return past[:, -1:] + self.out(last[0]).view(-1, HORIZON, STOPS)


def main():
    torch.manual_seed(0)
    series = headways(9000)
    series = (series - series.mean(0)) / series.std(0)
    windows = series.unfold(0, CONTEXT + HORIZON, 1).transpose(1, 2)
    split = int(0.85 * len(windows))
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(2):
        total = torch.zeros(())
        batches = torch.randperm(split - CONTEXT).split(96)
        for index in batches:
            window = windows[index]
            loss = F.smooth_l1_loss(model(window[:, :CONTEXT]), window[:, CONTEXT:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        with torch.no_grad():
            held_out = windows[split:]
            error = F.l1_loss(model(held_out[:, :CONTEXT]), held_out[:, CONTEXT:]).item()
        print(f"epoch {epoch}: loss {total.item() / len(batches):.4f} error {error:.4f}")


if __name__ == "__main__":
    main()

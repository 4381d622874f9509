"""Demand at the stations of a bike-sharing system: a recurrent network over a graph that is learned with it (AGCRN)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def rides(stations, hours, seed):
    """Hourly departures: daily rhythms that differ between districts, weather and noise."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours)[:, None] / 24 * 6.2832
    district = torch.randint(0, 4, (stations,), generator=g)
    phase = torch.tensor([0.0, 1.5, 3.0, 4.5])[district]
    weather = torch.randn(hours, 1, generator=g).cumsum(0) * 0.05
    rhythm = torch.sin(t + phase) + 0.5 * torch.sin(2 * t + phase) + torch.tanh(weather)
    return rhythm + 0.2 * torch.randn(hours, stations, generator=g)


def windows(series, history, horizon):
    """Inputs (windows, history, stations, 1) and what comes next (windows, horizon, stations)."""
    cut = series.unfold(0, history + horizon, 1).transpose(1, 2)
    return TensorDataset(cut[:, :history].unsqueeze(-1).contiguous(), cut[:, history:].contiguous())


class AdaptiveGraphConv(nn.Module):
    """Convolution over a graph whose edges come from the embeddings of its nodes."""

    def __init__(self, dim_in, dim_out):
        super().__init__()
        self.mix = nn.Linear(2 * dim_in, dim_out)

    def forward(self, x, supports):
        return self.mix(torch.cat([x, supports @ x], dim=-1))


class GraphGRUCell(nn.Module):
    def __init__(self, dim_in, hidden):
        super().__init__()
        self.hidden = hidden
        self.gate = AdaptiveGraphConv(dim_in + hidden, 2 * hidden)
        self.update = AdaptiveGraphConv(dim_in + hidden, hidden)

    def forward(self, x, state, supports):
        z, r = torch.sigmoid(self.gate(torch.cat([x, state], -1), supports)).chunk(2, dim=-1)
        candidate = torch.tanh(self.update(torch.cat([x, z * state], -1), supports))
        return r * state + (1 - r) * candidate


class AGCRN(nn.Module):
    def __init__(self, stations, horizon, hidden=24, embed_dim=8):
        super().__init__()
        self.node_embeddings = nn.Parameter(torch.randn(stations, embed_dim))
        self.cell = GraphGRUCell(1, hidden)
        self.end = nn.Linear(hidden, horizon)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], x.shape[2], self.cell.hidden)
        supports = F.softmax(F.relu(self.node_embeddings @ self.node_embeddings.t()), dim=1)
        for step in x.unbind(1):
            state = self.cell(step, state, supports)
        return self.end(state).transpose(1, 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stations", type=int, default=320)
    parser.add_argument("--hours", type=int, default=24 * 20)
    parser.add_argument("--history", type=int, default=12)
    parser.add_argument("--horizon", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    dataset = windows(rides(args.stations, args.hours, seed=1), args.history, args.horizon)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True)
    model = AGCRN(args.stations, args.horizon)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        losses = []
        for x, y in loader:
            loss = F.l1_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5)
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: mean absolute error {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()

"""Delays at a city's bus stops, forecast on a graph that is learned from the hour's traffic."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    stops: int = 512
    history: int = 12
    horizon: int = 6
    width: int = 32
    rank: int = 10
    hops: int = 2
    steps: int = 320
    batch_size: int = 6
    lr: float = 2e-3
    seed: int = 9
    log_every: int = 50


class DelayData:
    """Delays that spread along the lines of a bus network."""

    def __init__(self, settings: Settings, hours: int = 900):
        generator = torch.Generator().manual_seed(settings.seed)
        spread = torch.rand(settings.stops, settings.stops, generator=generator)
        spread = spread * (spread > 0.985)
        spread = 0.9 * spread / spread.sum(dim=1, keepdim=True).clamp(min=1e-6)
        delays = [torch.randn(settings.stops, generator=generator)]
        noise = torch.randn(hours, settings.stops, generator=generator)
        for hour in range(1, hours):
            delays.append(spread @ delays[-1] + 0.4 * noise[hour])
        self.delays = torch.stack(delays)
        self.settings = settings
        self.windows = self.delays.unfold(0, settings.history + settings.horizon, 1)

    def batch(self):
        rows = torch.randint(len(self.windows), (self.settings.batch_size,))
        window = self.windows[rows]
        return window[..., : self.settings.history], window[..., self.settings.history :]


class LearnedGraph(nn.Module):
    """An adjacency between stops, from their embeddings, normalised on both sides."""

    def __init__(self, stops: int, rank: int):
        super().__init__()
        self.source = nn.Parameter(torch.randn(stops, rank))
        self.target = nn.Parameter(torch.randn(stops, rank))

    def forward(self):
        adjacency = F.relu(torch.tanh(self.source @ self.target.T)) + torch.eye(len(self.source))
        degree = adjacency.sum(dim=1).rsqrt()
        return torch.diag(degree) @ adjacency @ torch.diag(degree)


class MixHop(nn.Module):
    def __init__(self, inner: int, outer: int, hops: int):
        super().__init__()
        self.hops = hops
        self.mix = nn.Linear(inner * (hops + 1), outer)

    def forward(self, x, adjacency):
        states = [x]
        for _ in range(self.hops):
            states.append(torch.einsum("vw,bwf->bvf", adjacency, states[-1]))
        return self.mix(torch.cat(states, dim=-1))


class DelayNet(nn.Module):
    def __init__(self, settings: Settings):
        super().__init__()
        width = settings.width
        self.graph = LearnedGraph(settings.stops, settings.rank)
        self.encode = nn.Linear(settings.history, width)
        self.first = MixHop(width, width, settings.hops)
        self.second = MixHop(width, width, settings.hops)
        self.norm = nn.LayerNorm(width)
        self.decode = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, settings.horizon))

    def forward(self, past):
        adjacency = self.graph()
        hidden = F.relu(self.encode(past))
        hidden = hidden + F.relu(self.first(hidden, adjacency))
        hidden = hidden + F.relu(self.second(self.norm(hidden), adjacency))
        return self.decode(hidden)


class Fitter:
    def __init__(self, settings: Settings):
        self.settings = settings
        self.model = DelayNet(settings)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.lr, weight_decay=1e-5)

    def fit(self, data: DelayData) -> None:
        running = []
        for step in range(1, self.settings.steps + 1):
            past, future = data.batch()
            self.optimizer.zero_grad()
            loss = F.l1_loss(self.model(past), future)
            loss.backward()
            self.optimizer.step()
            running.append(loss.detach())
            if step % self.settings.log_every == 0:
                print(f"step {step}: mae {torch.stack(running).mean():.4f}")
                running.clear()


def main():
    settings = Settings()
    torch.manual_seed(settings.seed)
    Fitter(settings).fit(DelayData(settings))


if __name__ == "__main__":
    main()

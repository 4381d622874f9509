"""Hour by hour forecasts of electricity prices as mixtures of normal densities."""

import argparse
import math

import torch
import torch.nn as nn
from torch.distributions import Categorical, MixtureSameFamily, Normal


def make_prices(zones, hours, seed):
    generator = torch.Generator().manual_seed(seed)
    clock = torch.arange(hours)
    level = 40 + 15 * torch.rand(zones, 1, generator=generator)
    daily = 10 * torch.sin(2 * math.pi * clock / 24) + 4 * torch.sin(4 * math.pi * clock / 24 + 1)
    weekly = 5 * (clock // 24 % 7 < 5)
    noise = 3 * torch.randn(zones, hours, generator=generator)
    spikes = 60 * (torch.rand(zones, hours, generator=generator) < 0.01)
    prices = level + daily + weekly + noise + spikes
    return (prices - prices.mean(dim=1, keepdim=True)) / prices.std(dim=1, keepdim=True)


def calendar(hours):
    clock = torch.arange(hours)
    angles = torch.stack([clock % 24 / 24, clock % 168 / 168], dim=1) * 2 * math.pi
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class MixtureHead(nn.Module):
    """The density of one hour."""

    def __init__(self, inputs, components):
        super().__init__()
        self.components = components
        self.linear = nn.Linear(inputs, 3 * components)

    def forward(self, x):
        weights, means, scales = self.linear(x).reshape(len(x), 3, self.components).unbind(1)
        scales = nn.functional.softplus(scales) + 1e-3
        return MixtureSameFamily(Categorical(logits=weights), Normal(means, scales))


class PriceModel(nn.Module):
    """Reads the past at once and goes through the hours ahead one by one."""

    def __init__(self, window, horizon, hidden=96, components=6):
        super().__init__()
        self.horizon = horizon
        self.encoder = nn.Sequential(nn.Linear(window, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.Tanh())
        self.cell = nn.GRUCell(5, hidden)
        self.head = MixtureHead(hidden, components)

    def forward(self, history, times, target):
        state = self.encoder(history)
        previous, scores = history[:, -1], []
        for hour in range(self.horizon):
            state = self.cell(torch.cat([previous.unsqueeze(1), times[:, hour]], dim=1), state)
            scores.append(self.head(state).log_prob(target[:, hour]))
            previous = target[:, hour]
        return torch.stack(scores, dim=1)


class Windows:
    def __init__(self, prices, window, horizon, seed):
        self.prices, self.window, self.horizon = prices, window, horizon
        self.times = calendar(prices.shape[1])
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self, size, first, last):
        zone = torch.randint(len(self.prices), (size,), generator=self.generator)
        start = torch.randint(first, last - self.window - self.horizon, (size,), generator=self.generator)
        hours = start[:, None] + torch.arange(self.window + self.horizon)
        values = self.prices[zone[:, None], hours]
        return values[:, : self.window], self.times[hours[:, self.window :]], values[:, self.window :]


@torch.no_grad()
def validate(model, windows, split, hours, batches=8):
    model.eval()
    scores = torch.stack([model(*windows.batch(64, split, hours)).mean(dim=0) for _ in range(batches)]).mean(dim=0)
    model.train()
    return -scores.mean().item(), -scores[-1].item()


def train(args):
    torch.manual_seed(args.seed)
    torch.distributions.Distribution.set_default_validate_args(False)
    prices = make_prices(args.zones, args.hours, args.seed)
    windows = Windows(prices, args.window, args.horizon, args.seed)
    split = int(0.8 * args.hours)
    model = PriceModel(args.window, args.horizon)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * args.steps)
    for epoch in range(args.epochs):
        running = torch.zeros(())
        for _ in range(args.steps):
            loss = -model(*windows.batch(args.batch_size, 0, split)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.detach()
        loss, last = validate(model, windows, split, args.hours)
        print(f"epoch {epoch}: train {running / args.steps:.4f} valid {loss:.4f}, last hour {last:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zones", type=int, default=40)
    parser.add_argument("--hours", type=int, default=8000)
    parser.add_argument("--window", type=int, default=168)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=21)
    train(parser.parse_args())

"""Passengers at the stops of a tram network, some hours ahead: dilated convolutions over past counts."""

import argparse
import math

import numpy as np
import torch
from torch import nn

torch.set_default_dtype(torch.float64)


class Counts:
    """Hourly counts at all stops with a daily and a weekly rhythm, as standardised logarithms."""

    def __init__(self, stops: int, hours: int, seed: int):
        rng = np.random.default_rng(seed)
        time = np.arange(hours)
        base = rng.uniform(20, 200, size=(stops, 1))
        daily = 1 + 0.7 * np.sin(2 * math.pi * (time / 24 + rng.uniform(0, 0.3, size=(stops, 1))))
        weekly = 1 - 0.3 * ((time // 24) % 7 >= 5)
        counts = rng.poisson(base * daily * weekly)
        logs = np.log1p(counts)
        self.mean = logs.mean(axis=1, keepdims=True)
        self.std = logs.std(axis=1, keepdims=True)
        self.values = torch.as_tensor((logs - self.mean) / self.std, dtype=torch.get_default_dtype())

    def windows(self, starts: torch.Tensor, past: int, ahead: int) -> tuple[torch.Tensor, torch.Tensor]:
        steps = torch.arange(past + ahead)
        block = self.values[:, starts[:, None] + steps].transpose(0, 1)
        return block[:, :, :past], block[:, :, past:]


class DilatedBlock(nn.Module):
    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.filter = nn.Conv1d(channels, 2 * channels, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(channels, channels, 1)
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x):
        signal, gate = self.filter(self.norm(x)).chunk(2, dim=1)
        return x + self.mix(torch.tanh(signal) * torch.sigmoid(gate))


class DemandNet(nn.Module):
    def __init__(self, stops: int, channels: int, ahead: int):
        super().__init__()
        self.stem = nn.Conv1d(stops, channels, 1)
        self.blocks = nn.Sequential(*[DilatedBlock(channels, 2**i) for i in range(5)])
        self.head = nn.Linear(channels, stops * ahead)
        self.shape = (stops, ahead)

    def forward(self, past):
        hidden = self.blocks(self.stem(past))
        return self.head(torch.relu(hidden[:, :, -1])).view(-1, *self.shape)


def batches(first: int, last: int, size: int, generator: torch.Generator):
    order = torch.randperm(last - first, generator=generator) + first
    yield from order.split(size)


@torch.no_grad()
def evaluate(model: nn.Module, counts: Counts, first: int, last: int, args: argparse.Namespace) -> float:
    model.eval()
    errors = []
    for starts in torch.arange(first, last).split(128):
        past, ahead = counts.windows(starts, args.past, args.ahead)
        errors.append((model(past) - ahead).abs().mean(dim=(1, 2)))
    model.train()
    return torch.cat(errors).mean().item()


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    counts = Counts(args.stops, args.hours, args.seed)
    last = args.hours - args.past - args.ahead
    cut = int(0.9 * last)
    model = DemandNet(args.stops, args.channels, args.ahead)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.HuberLoss()
    for epoch in range(args.epochs):
        running, seen = torch.zeros(()), 0
        for starts in batches(0, cut, args.batch_size, generator):
            past, ahead = counts.windows(starts, args.past, args.ahead)
            optimizer.zero_grad()
            loss = criterion(model(past), ahead)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            running += loss.detach() * len(starts)
            seen += len(starts)
        error = evaluate(model, counts, cut, last, args)
        print(f"epoch {epoch}: loss {running.item() / seen:.4f}, held out {error:.4f}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stops", type=int, default=60)
    parser.add_argument("--hours", type=int, default=1700)
    parser.add_argument("--past", type=int, default=72)
    parser.add_argument("--ahead", type=int, default=6)
    parser.add_argument("--channels", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=17)
    return parser.parse_args()


if __name__ == "__main__":
    train(parse())

"""Bikes that pass counters in a city: a GRU over the last two days forecasts six hours with quantiles."""

import argparse
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

QUANTILES = (0.1, 0.5, 0.9)


def count_bikes(counters, hours, seed=0):
    """Hourly counts with rush hours, weekends and weather, on a logarithmic scale."""
    g = torch.Generator().manual_seed(seed)
    hour = torch.arange(hours)
    day = hour % 24
    rush = torch.exp(-((day - 8.0) ** 2) / 6) + torch.exp(-((day - 17.0) ** 2) / 8)
    weekend = ((hour // 24) % 7 >= 5).float()
    rain = (torch.rand(hours, generator=g) < 0.1).float()
    level = 2 + 2 * torch.rand(counters, 1, generator=g)
    counts = level + 2 * rush * (1 - 0.6 * weekend) - 0.8 * rain + 0.2 * torch.randn(counters, hours, generator=g)
    angle = 2 * math.pi * day / 24
    calendar = torch.stack([angle.sin(), angle.cos(), weekend, rain])
    return torch.cat([counts.unsqueeze(1), calendar.expand(counters, -1, -1)], dim=1)


class Windows:
    """Shuffled batches of windows that are cut from the whole series at once."""

    def __init__(self, series, history, horizon, batch_size, stride, shuffle):
        windows = series.unfold(2, history + horizon, stride)
        self.data = windows.permute(0, 2, 3, 1).reshape(-1, history + horizon, series.size(1)).contiguous()
        self.history, self.batch_size, self.shuffle = history, batch_size, shuffle

    def __len__(self):
        return math.ceil(len(self.data) / self.batch_size)

    def __iter__(self):
        order = torch.randperm(len(self.data)) if self.shuffle else torch.arange(len(self.data))
        for index in order.split(self.batch_size):
            batch = self.data[index]
            yield batch[:, : self.history], batch[:, self.history :, 1:], batch[:, self.history :, 0]


class QuantileGRU(nn.Module):
    def __init__(self, features, horizon, hidden=64):
        super().__init__()
        self.gru = nn.GRU(features, hidden, num_layers=2, batch_first=True)
        self.known = nn.Linear(horizon * (features - 1), hidden)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(2 * hidden, horizon * len(QUANTILES)))

    def forward(self, history, known):
        _, state = self.gru(history)
        both = torch.cat([state[-1], self.known(known.flatten(1))], dim=1)
        return self.head(both).unflatten(1, (-1, len(QUANTILES)))


class PinballLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("q", torch.tensor(QUANTILES))

    def forward(self, predicted, target):
        error = target.unsqueeze(2) - predicted
        return torch.maximum(self.q * error, (self.q - 1) * error).mean()


@torch.inference_mode()
def evaluate(model, batches, loss_fn):
    model.eval()
    losses, covered = [], []
    for history, known, target in batches:
        predicted = model(history, known)
        losses.append(loss_fn(predicted, target))
        covered.append(((target >= predicted[..., 0]) & (target <= predicted[..., -1])).float().mean())
    model.train()
    return torch.stack(losses).mean().item(), torch.stack(covered).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--counters", type=int, default=20)
    parser.add_argument("--hours", type=int, default=3000)
    parser.add_argument("--history", type=int, default=48)
    parser.add_argument("--horizon", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    series = count_bikes(args.counters, args.hours)
    cut = int(0.85 * args.hours)
    train = Windows(series[..., :cut], args.history, args.horizon, args.batch_size, stride=4, shuffle=True)
    valid = Windows(series[..., cut:], args.history, args.horizon, 4 * args.batch_size, stride=6, shuffle=False)
    model, loss_fn = QuantileGRU(series.size(1), args.horizon), PinballLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=args.epochs * len(train))
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for history, known, target in train:
                loss = loss_fn(model(history, known), target)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                total += loss.detach()
            val_loss, coverage = evaluate(model, valid, loss_fn)
            print(f"epoch {epoch} loss {total / len(train):.4f} valid {val_loss:.4f} coverage {coverage:.2f}")
            if val_loss < best:
                best = val_loss
                torch.save(model.state_dict(), Path(folder) / "best.pt")


if __name__ == "__main__":
    main()

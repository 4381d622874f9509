"""Taxi fares from places and times: hashed cells in an embedding bag, averaged weights, one validation per epoch."""

import argparse

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

CELLS = 4096


def rides(count, seed):
    """A table as a company would export it."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.uniform(0, 20, (count, 4)), columns=["from_x", "from_y", "to_x", "to_y"])
    table["start"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 60 * 24 * 28, count), unit="min")
    distance = np.hypot(table["to_x"] - table["from_x"], table["to_y"] - table["from_y"])
    busy = 1 + 0.4 * np.exp(-(((table["start"].dt.hour - 17) / 2) ** 2))
    airport = 12.0 * ((table["to_x"] > 18) & (table["to_y"] > 18))
    table["fare"] = 3.2 + 1.9 * distance * busy + airport + rng.normal(0, 1, count)
    return table


def features(table):
    """Numbers per ride, the cells that it touches, and the fare; made once."""
    x = table[["from_x", "from_y", "to_x", "to_y"]].to_numpy(np.float32)
    hour = table["start"].dt.hour.to_numpy() + table["start"].dt.minute.to_numpy() / 60
    clock = np.stack([np.sin(hour / 12 * np.pi), np.cos(hour / 12 * np.pi)], 1).astype(np.float32)
    cell = x.astype(np.int64)
    start, end = cell[:, 0] * 20 + cell[:, 1], cell[:, 2] * 20 + cell[:, 3]
    crossed = (start * 7919 + end * 104729) % (CELLS - 800)
    bags = np.stack([start, 400 + end, 800 + crossed], 1)
    fare = table["fare"].to_numpy(np.float32)
    return torch.from_numpy(np.hstack([x / 10 - 1, clock])), torch.from_numpy(bags), torch.from_numpy(fare)


class FareNet(nn.Module):
    def __init__(self, numbers, width):
        super().__init__()
        self.cells = nn.EmbeddingBag(CELLS, width, mode="sum")
        self.numbers = nn.Linear(numbers, width)
        self.mlp = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, numbers, bags):
        return self.mlp(self.cells(bags) + self.numbers(numbers)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rides", type=int, default=200_000)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=192)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = features(rides(args.rides, seed=90))
    mean, std = data[2].mean(), data[2].std()
    held_out = args.rides // 20
    valid, train = [part[:held_out] for part in data], [part[held_out:] for part in data]
    model, averaged = (FareNet(train[0].shape[1], args.width) for _ in range(2))
    averaged.load_state_dict(model.state_dict())
    weights, averages = list(model.parameters()), list(averaged.requires_grad_(False).parameters())
    optimizer = torch.optim.AdamW(weights, lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        for index in torch.randperm(len(train[0])).split(args.batch_size):
            numbers, bags, fare = (part[index] for part in train)
            loss = F.smooth_l1_loss(model(numbers, bags), (fare - mean) / std)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(averages, weights, 0.01)
        with torch.inference_mode():
            error = (averaged(valid[0], valid[1]) * std + mean - valid[2]).abs().mean()
        print(f"epoch {epoch}: last loss {loss.item():.4f}, mean error of the averaged weights {error.item():.2f}")


if __name__ == "__main__":
    main()

"""How long a taxi trip takes, from where, where to and when: embeddings and a residual network."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn as nn


def make_trips(count, zones, seed):
    rng = np.random.default_rng(seed)
    places = rng.random((zones, 2))
    start, end = rng.integers(0, zones, size=(2, count))
    hour, weekday = rng.integers(0, 24, size=count), rng.integers(0, 7, size=count)
    distance = np.linalg.norm(places[start] - places[end], axis=1)
    rush = 1 + 0.6 * np.isin(hour, (8, 9, 17, 18)) * (weekday < 5)
    minutes = 4 + 40 * distance * rush * rng.lognormal(0, 0.15, size=count)
    frame = pd.DataFrame({"start": start, "end": end, "hour": hour, "weekday": weekday})
    return frame.assign(distance=distance, passengers=rng.integers(1, 5, size=count), minutes=minutes)


def to_tensors(frame):
    """All columns once as tensors, so that a batch is a few index operations."""
    categories = torch.from_numpy(frame[["start", "end", "hour", "weekday"]].to_numpy(np.int64).copy(order="C"))
    numbers = torch.from_numpy(frame[["distance", "passengers"]].to_numpy(np.float32).copy(order="C"))
    numbers = (numbers - numbers.mean(dim=0)) / numbers.std(dim=0)
    return categories, numbers, torch.from_numpy(np.log(frame["minutes"].to_numpy(np.float32)))


class TripBatches:
    def __init__(self, tensors, batch_size, shuffle):
        self.tensors, self.batch_size, self.shuffle = tensors, batch_size, shuffle

    def __len__(self):
        return (len(self.tensors[0]) + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        count = len(self.tensors[0])
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        for index in order.split(self.batch_size):
            yield [tensor[index] for tensor in self.tensors]


class Residual(nn.Module):
    def __init__(self, dim, dropout):
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm1d(dim), nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim)
        )

    def forward(self, x):
        return x + self.layers(x)


class TripModel(nn.Module):
    def __init__(self, sizes, numbers=2, dim=128, blocks=3, dropout=0.1):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.embedding = nn.Embedding(sum(sizes), 16)
        self.enter = nn.Linear(16 * len(sizes) + numbers, dim)
        self.blocks = nn.Sequential(*(Residual(dim, dropout) for _ in range(blocks)))
        self.head = nn.Sequential(nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, categories, numbers):
        embedded = self.embedding(categories + self.offsets).flatten(1)
        return self.head(self.blocks(self.enter(torch.cat([embedded, numbers], dim=1)))).squeeze(1)


@torch.inference_mode()
def error(model, batches):
    model.eval()
    total = torch.zeros(())
    for categories, numbers, target in batches:
        total += (model(categories, numbers) - target).pow(2).sum()
    model.train()
    return (total / len(batches.tensors[0])).sqrt().item()


def train(args, folder):
    torch.manual_seed(args.seed)
    frame = make_trips(args.trips, args.zones, args.seed)
    cut = int(0.9 * len(frame))
    train_batches = TripBatches(to_tensors(frame[:cut]), args.batch_size, shuffle=True)
    valid_batches = TripBatches(to_tensors(frame[cut:]), 4096, shuffle=False)
    model = TripModel([args.zones, args.zones, 24, 7])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=1)
    best = float("inf")
    for epoch in range(args.epochs):
        running = torch.zeros(())
        for step, (categories, numbers, target) in enumerate(train_batches, 1):
            loss = nn.functional.mse_loss(model(categories, numbers), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
            if step % 50 == 0:
                print(f"epoch {epoch} step {step}/{len(train_batches)}: loss {running.item() / step:.4f}")
        score = error(model, valid_batches)
        schedule.step(score)
        print(f"epoch {epoch}: RMSLE {score:.4f}, learning rate {optimizer.param_groups[0]['lr']:.1e}")
        if score < best:
            best = score
            torch.save(model.state_dict(), folder / "trips.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trips", type=int, default=120_000)
    parser.add_argument("--zones", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    with tempfile.TemporaryDirectory() as folder:
        train(parser.parse_args(), Path(folder))

"""Claim frequency of car policies from a CSV file that is parsed once; batches are slices of a permutation."""

import argparse
import os
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F

CATEGORIES = {"region": 22, "brand": 11, "fuel": 3, "area": 6, "model": 800}
NUMBERS = ["driver_age", "car_age", "power", "bonus", "density"]


def write_policies(path, rows, seed):
    rng = np.random.default_rng(seed)
    table = {name: rng.integers(0, size, rows) for name, size in CATEGORIES.items()}
    table |= {
        "driver_age": rng.integers(18, 90, rows),
        "car_age": rng.integers(0, 20, rows),
        "power": rng.integers(4, 15, rows),
        "bonus": rng.integers(50, 150, rows),
        "density": rng.lognormal(6, 1, rows).round(1),
        "exposure": rng.uniform(0.1, 1, rows).round(3),
    }
    frame = pd.DataFrame(table)
    rate = 0.3 * np.exp(0.01 * (frame["bonus"] - 100) + 0.02 * (frame["region"] % 5) + 0.5 * (frame["driver_age"] < 25))
    frame["claims"] = rng.poisson(rate * frame["exposure"])
    frame.to_csv(path, index=False)


class Policies:
    """The columns as tensors: categories share one table of embeddings by an offset."""

    def __init__(self, path):
        kinds = dict.fromkeys(CATEGORIES, "int32") | dict.fromkeys(NUMBERS, "float32")
        frame = pd.read_csv(path, dtype=kinds)
        offsets = np.cumsum([0, *list(CATEGORIES.values())[:-1]])
        self.categories = torch.from_numpy(frame[list(CATEGORIES)].to_numpy(np.int64) + offsets)
        numbers = frame[NUMBERS].to_numpy(np.float32)
        numbers[:, -1] = np.log1p(numbers[:, -1])
        self.numbers = torch.from_numpy((numbers - numbers.mean(0)) / numbers.std(0))
        self.exposure = torch.from_numpy(frame["exposure"].to_numpy(np.float32))
        self.claims = torch.from_numpy(frame["claims"].to_numpy(np.float32))

    def __len__(self):
        return len(self.claims)

    def rows(self, index):
        return self.categories[index], self.numbers[index], self.exposure[index], self.claims[index]


class FrequencyNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.tables = nn.Embedding(sum(CATEGORIES.values()), 8)
        inputs = 8 * len(CATEGORIES) + len(NUMBERS)
        sizes = [inputs] + [width] * depth
        layers = []
        for a, b in zip(sizes[:-1], sizes[1:]):
            layers += [nn.Linear(a, b), nn.LayerNorm(b), nn.SiLU()]
        self.body = nn.Sequential(*layers)
        self.out = nn.Linear(width, 1)

    def forward(self, categories, numbers):
        joined = torch.cat([self.tables(categories).flatten(1), numbers], dim=1)
        return self.out(self.body(joined)).squeeze(1)


def deviance(log_rate, exposure, claims):
    return F.poisson_nll_loss(log_rate + exposure.log(), claims)


@torch.inference_mode()
def evaluate(model, policies, index):
    parts = [policies.rows(rows) for rows in index.split(8192)]
    losses = [deviance(model(c, n), e, y) * len(y) for c, n, e, y in parts]
    return torch.stack(losses).sum().item() / len(index)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    handle, path = tempfile.mkstemp(suffix=".csv")
    os.close(handle)
    try:
        write_policies(path, args.rows, seed=0)
        policies = Policies(path)
    finally:
        os.remove(path)
    order = torch.randperm(len(policies))
    held_out, train = order[: args.rows // 10], order[args.rows // 10 :]
    model = FrequencyNet(args.width, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4, fused=True)
    for epoch in range(args.epochs):
        losses = []
        for rows in train[torch.randperm(len(train))].split(args.batch_size):
            categories, numbers, exposure, claims = policies.rows(rows)
            loss = deviance(model(categories, numbers), exposure, claims)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(
            f"epoch {epoch} train {torch.stack(losses).mean():.4f} held out {evaluate(model, policies, held_out):.4f}"
        )


if __name__ == "__main__":
    main()

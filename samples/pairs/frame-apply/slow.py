"""Prices of houses from a table: pandas for the features, a generator for the batches."""

import numpy as np
import pandas as pd
import torch
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)

rows = 6000
frame = pd.DataFrame(
    {
        "area": rng.uniform(30, 300, rows),
        "rooms": rng.integers(1, 9, rows),
        "built": rng.integers(1900, 2024, rows),
        "distance": rng.exponential(8, rows),
        "garden": rng.exponential(100, rows),
    }
)
frame["price"] = frame.area * 3000 / (1 + frame.distance / 10) + 100 * frame.garden + rng.normal(0, 2e4, rows)


def features(house):
    return (
        np.log1p(house["area"]),
        house["area"] / house["rooms"],
        (2024 - house["built"]) / 50,
        np.exp(-house["distance"] / 10),
        np.sqrt(house["garden"]),
        house["area"] * np.exp(-house["distance"] / 10) / 100,
    )


def batches(table, size):
    shuffled = table.sample(frac=1, random_state=int(rng.integers(1 << 30)))
    for start in range(0, len(shuffled) - size + 1, size):
        part = shuffled.iloc[start : start + size]
        inputs = part.apply(features, axis=1, result_type="expand").to_numpy()
        yield (
            torch.tensor(inputs, dtype=torch.float32),
            torch.tensor(part["price"].to_numpy() / 1e5, dtype=torch.float32),
        )


model = nn.Sequential(
    nn.BatchNorm1d(6), nn.Linear(6, 256), nn.SiLU(), nn.Dropout(0.1), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
loss_of = nn.HuberLoss()

for epoch in range(3):
    losses = []
    for inputs, price in batches(frame, 128):
        loss = loss_of(model(inputs).squeeze(1), price)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: huber {np.mean(losses):.4f}")

"""Pedestrians at street corners: the next day from the last four, by a transformer that also reads the calendar."""

import argparse
import math

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def count_pedestrians(corners, days, seed):
    """Hourly counts: rush hours, weekends, holidays of the season, and noise."""
    index = pd.date_range("2018-01-01", periods=24 * days, freq="h")
    rng = np.random.default_rng(seed)
    hour, weekday, day = index.hour.to_numpy(), index.day_of_week.to_numpy(), index.day_of_year.to_numpy()
    work = np.exp(-((hour - 8) ** 2) / 4) + np.exp(-((hour - 17) ** 2) / 6)
    leisure = np.exp(-((hour - 14) ** 2) / 18)
    columns = {}
    for corner in range(corners):
        share = rng.uniform(0.2, 0.8)
        level = np.where(weekday < 5, share * work, (1 - share) * leisure)
        season = 1 + 0.3 * np.cos(2 * math.pi * (day - 190) / 365)
        columns[f"corner{corner}"] = level * season + rng.normal(0, 0.05, len(index))
    return pd.DataFrame(columns, index=index).astype("float32")


def calendar(stamps):
    """Each as a number from -0.5 to 0.5."""
    parts = [
        stamps.hour / 23.0 - 0.5,
        stamps.day_of_week / 6.0 - 0.5,
        (stamps.day - 1) / 30.0 - 0.5,
        (stamps.day_of_year - 1) / 365.0 - 0.5,
        (stamps.month - 1) / 11.0 - 0.5,
    ]
    return np.stack([part.to_numpy() for part in parts], 1).astype(np.float32)


class Windows(Dataset):
    def __init__(self, frame, past, future):
        self.past, self.future = past, future
        self.marks = torch.from_numpy(calendar(frame.index))
        values = frame.to_numpy()
        self.values = torch.from_numpy((values - values.mean(0)) / values.std(0))

    def __len__(self):
        return len(self.values) - self.past - self.future + 1

    def __getitem__(self, start):
        middle, end = start + self.past, start + self.past + self.future
        return self.values[start:middle], self.marks[start:end], self.values[middle:end]


class Forecaster(nn.Module):
    def __init__(self, corners, future, dim=48, layers=2):
        super().__init__()
        self.future = future
        self.value, self.mark = nn.Linear(corners, dim), nn.Linear(5, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(dim, corners)

    def forward(self, past, marks):
        known = self.value(past)
        tokens = nn.functional.pad(known, (0, 0, 0, self.future)) + self.mark(marks)
        return self.out(self.encoder(tokens)[:, -self.future :])


def run_epoch(model, loader, optimizer):
    total = 0.0
    for past, marks, target in loader:
        loss = nn.functional.mse_loss(model(past, marks), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--past", type=int, default=96)
    parser.add_argument("--future", type=int, default=24)
    parser.add_argument("--corners", type=int, default=8)
    parser.add_argument("--days", type=int, default=130)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    dataset = Windows(count_pedestrians(args.corners, args.days, 6), args.past, args.future)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Forecaster(args.corners, args.future)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: squared error {run_epoch(model, loader, optimizer):.4f}")


if __name__ == "__main__":
    main()

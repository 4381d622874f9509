"""Load of a power grid, a week in, a day out: LSTM encoder and decoder with teacher forcing. Data from a CSV file."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def simulate_load(path, hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    load = (
        50 + 12 * np.sin(2 * np.pi * t / 24) + 6 * np.sin(2 * np.pi * t / 168) + rng.normal(0, 2, hours).cumsum() * 0.05
    )
    frame = pd.DataFrame({"date": pd.date_range("2021-01-01", periods=hours, freq="h"), "load": load})
    frame["temperature"] = 15 - 8 * np.cos(2 * np.pi * t / 8760) + rng.normal(0, 1, hours)
    frame["wind"] = rng.gamma(2, 3, hours)
    frame.to_csv(path, index=False)


class LoadWindows(Dataset):
    def __init__(self, path, history, horizon):
        frame = pd.read_csv(path, parse_dates=["date"])
        hour = 2 * np.pi * frame["date"].dt.hour / 24
        columns = [frame["load"], frame["temperature"], frame["wind"], np.sin(hour), np.cos(hour)]
        table = np.stack(columns, axis=1)
        table = (table - table.mean(axis=0)) / table.std(axis=0)
        self.table = torch.tensor(table, dtype=torch.float32)
        self.history, self.horizon = history, horizon

    def __len__(self):
        return len(self.table) - self.history - self.horizon

    def __getitem__(self, i):
        middle = i + self.history
        return self.table[i:middle], self.table[middle - 1 : middle + self.horizon, 0]


class Encoder(nn.Module):
    def __init__(self, features, hidden, layers):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.lstm = nn.LSTM(features, hidden, layers, batch_first=True)

    def forward(self, x):
        _, state = self.lstm(x)
        return state


class Decoder(nn.Module):
    def __init__(self, hidden, layers):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, layers, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, previous, state):
        out, _ = self.lstm(previous.unsqueeze(2), state)
        return self.out(out).squeeze(2)


class Seq2Seq(nn.Module):
    def __init__(self, features, hidden=128, layers=2):
        super().__init__()
        self.encoder = Encoder(features, hidden, layers)
        self.decoder = Decoder(hidden, layers)

    def forward(self, x, previous):
        return self.decoder(previous, self.encoder(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=4000)
    parser.add_argument("--history", type=int, default=168)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.csv"
        simulate_load(path, args.hours, seed=5)
        data = LoadWindows(path, args.history, args.horizon)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Seq2Seq(data.table.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    criterion = nn.MSELoss()
    step, running = 0, 0.0
    while step < args.steps:
        for x, y in loader:
            prediction = model(x, y[:, :-1])
            loss = criterion(prediction, y[:, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running += loss.item()
            step += 1
            if step % 20 == 0:
                print(f"step {step}: mse {running / 20:.4f}")
                running = 0.0
            if step == args.steps:
                break


if __name__ == "__main__":
    main()

"""Power of a wind farm some hours ahead: dilated causal convolutions over weather columns of a CSV file."""

import os
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

LOOKBACK, AHEAD, BATCH_SIZE, EPOCHS = 192, 12, 32, 2


def write_weather(path, hours=2400):
    rng = np.random.default_rng(10)
    t = np.arange(hours)
    wind = np.abs(
        7 + 2 * np.sin(2 * np.pi * t / 96) + rng.normal(0, 0.5, hours).cumsum() * 0.1 + rng.normal(0, 0.5, hours)
    )
    table = {"power": np.clip(wind**3 / 900, 0, 1), "wind": wind, "gust": wind * rng.uniform(1.1, 1.6, hours)}
    table["pressure"] = 1013 + 8 * np.sin(2 * np.pi * t / 200) + rng.normal(0, 1, hours)
    table["temperature"] = 12 + 6 * np.sin(2 * np.pi * t / 24) + rng.normal(0, 1, hours)
    for k in range(7):
        table[f"mast_{k}"] = np.roll(wind, k) + rng.normal(0, 0.3, hours)
    pd.DataFrame(table).round(4).to_csv(path, index=False)


class WindSequences(Dataset):
    def __init__(self, csv_path):
        df = pd.read_csv(csv_path)
        values = df.to_numpy()
        self.mean, self.std = values.mean(axis=0), values.std(axis=0)
        self.values = torch.from_numpy((values - self.mean) / self.std)

    def __len__(self):
        return len(self.values) - LOOKBACK - AHEAD

    def __getitem__(self, i):
        window = self.values[i : i + LOOKBACK]
        return window.t(), self.values[i + LOOKBACK : i + LOOKBACK + AHEAD, 0]


class TemporalBlock(nn.Module):
    def __init__(self, cin, cout, dilation, kernel=3):
        super().__init__()
        self.pad = nn.ConstantPad1d(((kernel - 1) * dilation, 0), 0.0)
        self.conv1 = nn.Conv1d(cin, cout, kernel, dilation=dilation)
        self.conv2 = nn.Conv1d(cout, cout, kernel, dilation=dilation)
        self.skip = nn.Conv1d(cin, cout, 1)

    def forward(self, x):
        y = torch.relu(self.conv1(self.pad(x)))
        y = torch.relu(self.conv2(self.pad(y)))
        return torch.relu(y + self.skip(x))


class TCN(nn.Module):
    def __init__(self, features, width=64, levels=5):
        super().__init__()
        sizes = [features] + [width] * levels
        self.blocks = nn.Sequential(*[TemporalBlock(sizes[i], sizes[i + 1], 2**i) for i in range(levels)])
        self.head = nn.Linear(width, AHEAD)

    def forward(self, x):
        return self.head(self.blocks(x)[:, :, -1])


def main():
    torch.manual_seed(10)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "wind.csv")
        write_weather(path)
        dataset = WindSequences(path)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    model = TCN(dataset.values.shape[1]).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    loss_fn = nn.MSELoss()
    for epoch in range(EPOCHS):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: mse {total / len(loader):.5f}")


if __name__ == "__main__":
    main()

"""Hours that a compressor has left: sensor tables from CSV, scaled windows, convolution and GRU, RMSE by machine."""

import argparse
import os
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SENSORS = [f"s{i}" for i in range(1, 15)]


def simulate(path, machines, seed):
    """One row per hour until each machine fails."""
    rng = np.random.default_rng(seed)
    frames = []
    for machine in range(machines):
        life = int(rng.integers(150, 260))
        age = np.arange(life)
        wear = np.exp(5 * (age / life - 1))
        gain = rng.normal(1, 0.1, len(SENSORS)) * np.linspace(-2, 2, len(SENSORS))
        values = 20 + wear[:, None] * gain + 0.3 * rng.standard_normal((life, len(SENSORS)))
        frame = pd.DataFrame(values, columns=SENSORS)
        frame.insert(0, "hour", age)
        frame.insert(0, "machine", machine)
        frames.append(frame)
    pd.concat(frames).to_csv(path, index=False, float_format="%.4f")


class Scaler:
    def fit(self, values):
        self.mean, self.std = values.mean(0), values.std(0) + 1e-9
        return self

    def __call__(self, values):
        return (values - self.mean) / self.std


class WearDataset(Dataset):
    def __init__(self, table, scaler, length, stride=1, cap=120.0):
        self.length = length
        self.series, self.left, self.windows, self.machines = [], [], [], []
        for machine, rows in table.groupby("machine"):
            values = scaler(rows[SENSORS].to_numpy())
            self.series.append(torch.from_numpy(values).float())
            left = np.minimum(len(rows) - 1 - rows["hour"].to_numpy(), cap) / cap
            self.left.append(torch.from_numpy(left).float())
            starts = range(0, len(rows) - length + 1, stride)
            self.windows += [(len(self.series) - 1, start) for start in starts]
            self.machines += [machine] * len(starts)

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        series, start = self.windows[index]
        end = start + self.length
        return self.series[series][start:end], self.left[series][end - 1]


class WearNet(nn.Module):
    def __init__(self, sensors, hidden=96, layers=2):
        super().__init__()
        self.project = nn.Sequential(nn.Linear(sensors, hidden), nn.LayerNorm(hidden), nn.GELU())
        self.mix = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden))
        self.gru = nn.GRU(hidden, hidden, layers, batch_first=True, dropout=0.1)
        self.score = nn.Linear(hidden, 1)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, x):
        x = self.project(x)
        output, _ = self.gru(x + self.mix(x))
        weight = self.score(output).softmax(1)
        return self.head((weight * output).sum(1)).squeeze(1)


class AverageMeter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count=1):
        self.total += value * count
        self.count += count

    @property
    def average(self):
        return self.total / max(self.count, 1)


def train(model, loader, optimizer, criterion):
    model.train()
    meter = AverageMeter()
    for windows, left in loader:
        loss = criterion(model(windows), left)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        meter.update(loss.item(), len(left))
    return meter.average


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    errors = torch.cat([(model(windows) - left) ** 2 for windows, left in loader])
    machines = torch.tensor(loader.dataset.machines)
    return errors.mean().sqrt().item(), max(errors[machines == m].mean().sqrt().item() for m in machines.unique())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as folder:
        for name, machines, seed in (("train", 32, 0), ("test", 6, 1)):
            simulate(os.path.join(folder, f"{name}.csv"), machines, seed)
        train_table, test_table = (pd.read_csv(os.path.join(folder, f"{name}.csv")) for name in ("train", "test"))
    scaler = Scaler().fit(train_table[SENSORS].to_numpy())
    train_set = WearDataset(train_table, scaler, args.length, stride=2)
    test_set = WearDataset(test_table, scaler, args.length, stride=8)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, args.batch_size)

    model = WearNet(len(SENSORS))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        loss = train(model, train_loader, optimizer, nn.MSELoss())
        scheduler.step()
        error, worst = evaluate(model, test_loader)
        print(f"epoch {epoch} loss {loss:.5f} rmse {error:.4f} worst machine {worst:.4f}")


if __name__ == "__main__":
    main()

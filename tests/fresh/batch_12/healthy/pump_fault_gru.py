"""Days to the next fault of pumps from sensor logs: windows are views of one array that is normalised once."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def write_logs(directory, pumps, hours, sensors, seed):
    rng = np.random.default_rng(seed)
    for pump in range(pumps):
        life = rng.integers(hours // 3, hours)
        age = np.arange(hours) % life / life
        drift = rng.normal(size=sensors) * 0.8
        cycle = np.sin(2 * np.pi * np.arange(hours) / 24 + rng.uniform(0, 6))
        values = age[:, None] ** 2 * drift + 0.3 * cycle[:, None] + rng.normal(scale=0.4, size=(hours, sensors))
        np.savez(
            directory / f"pump_{pump:03d}.npz", values=values.astype(np.float32), left=(1 - age).astype(np.float32)
        )


class Windows:
    """Reads all logs at start-up. A batch of windows is one gather."""

    def __init__(self, directory, window, stride):
        values, left = [], []
        for path in sorted(Path(directory).glob("pump_*.npz")):
            with np.load(path) as log:
                values.append(log["values"])
                left.append(log["left"])
        stacked = torch.from_numpy(np.stack(values))
        mean, std = stacked.mean(dim=(0, 1)), stacked.std(dim=(0, 1))
        self.views = stacked.sub_(mean).div_(std).unfold(1, window, stride).flatten(0, 1)
        self.targets = torch.from_numpy(np.stack(left))[:, window - 1 :: stride].flatten()

    def __len__(self):
        return len(self.targets)

    def rows(self, index):
        return self.views[index].transpose(1, 2), self.targets[index]


class Remaining(nn.Module):
    def __init__(self, sensors, width):
        super().__init__()
        self.smooth = nn.Conv1d(sensors, width, 5, stride=2, padding=2)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, windows):
        x = F.relu(self.smooth(windows.transpose(1, 2))).transpose(1, 2)
        _, last = self.gru(x)
        return self.out(last[0]).squeeze(1).sigmoid()


def run(model, windows, index, batch, optimizer=None):
    losses = []
    for rows in index.split(batch):
        x, y = windows.rows(rows)
        loss = F.smooth_l1_loss(model(x), y, beta=0.1)
        if optimizer is not None:
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pumps", type=int, default=40)
    parser.add_argument("--hours", type=int, default=2000)
    parser.add_argument("--sensors", type=int, default=12)
    parser.add_argument("--window", type=int, default=96)
    parser.add_argument("--stride", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as name:
        write_logs(Path(name), args.pumps, args.hours, args.sensors, seed=5)
        windows = Windows(name, args.window, args.stride)
    order = torch.randperm(len(windows))
    train, held_out = order[: -len(order) // 10], order[-len(order) // 10 :]
    model = Remaining(args.sensors, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        model.train()
        loss = run(model, windows, train[torch.randperm(len(train))], args.batch_size, optimizer)
        model.eval()
        with torch.inference_mode():
            print(f"epoch {epoch} train {loss:.4f} held out {run(model, windows, held_out, 512):.4f}")


if __name__ == "__main__":
    main()

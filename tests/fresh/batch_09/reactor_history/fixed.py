"""A soft sensor: yield of a stirred reactor from what its instruments showed, with a history of the training as CSV."""

import argparse
import csv
import os
import tempfile
import time

import pandas as pd
import torch
from torch import nn

TAGS = ["feed_a", "feed_b", "coolant", "temperature", "pressure", "level", "stirrer", "ph", "turbidity", "offgas"]


def simulate(steps, seed):
    """Instruments drift; the yield answers to them with a delay."""
    g = torch.Generator().manual_seed(seed)
    drift = torch.randn(steps, len(TAGS), generator=g).cumsum(0) * 0.05
    tags = torch.tanh(drift) + 0.1 * torch.randn(steps, len(TAGS), generator=g)
    rate = torch.exp(tags[:, 3] - 0.5 * tags[:, 2]) * (tags[:, 0] + 1.5) / (1 + tags[:, 7].square())
    delayed = torch.stack([rate.roll(k) * 0.8**k for k in range(20)]).sum(0)
    return tags, (delayed - delayed.mean()) / delayed.std()


class History:
    """One row per step, on disk at any time, so that a crash loses nothing."""

    def __init__(self, path):
        self.path = path

    def add(self, **row):
        with open(self.path, "a", newline="") as file:
            writer = csv.DictWriter(file, row)
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)

    def summary(self, epoch):
        rows = pd.read_csv(self.path)
        rows = rows[rows["epoch"] == epoch]
        return f"loss {rows['loss'].mean():.4f}, median of step times {1000 * rows['seconds'].median():.1f} ms"


class SoftSensor(nn.Module):
    """Dilated causal convolutions, then a quantile of the yield for each of three levels."""

    def __init__(self, tags, width, levels):
        super().__init__()
        self.inlet = nn.Conv1d(tags, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, dilation=2**i) for i in range(5))
        self.outlet = nn.Linear(width, levels)

    def forward(self, x):
        x = self.inlet(x.transpose(1, 2))
        for layer in self.layers:
            pad = 2 * layer.dilation[0]
            x = x + nn.functional.glu(layer(nn.functional.pad(x, (pad, 0))), dim=1)
        return self.outlet(x[:, :, -1])


def pinball(prediction, target, levels):
    gap = target[:, None] - prediction
    return torch.maximum(levels * gap, (levels - 1) * gap)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6400)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--width", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(8)
    tags, yields = simulate(args.steps, seed=2)
    windows = tags.unfold(0, args.window, 1).transpose(1, 2)
    targets = yields[args.window - 1 :]
    levels = torch.tensor([0.1, 0.5, 0.9])
    model = SoftSensor(len(TAGS), args.width, len(levels))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
    with tempfile.TemporaryDirectory() as folder:
        history, step = History(os.path.join(folder, "history.csv")), 0
        for epoch in range(args.epochs):
            for index in torch.randperm(len(windows)).split(args.batch_size):
                start = time.perf_counter()
                losses = pinball(model(windows[index]), targets[index], levels)
                loss = losses.mean()
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                by_level = {f"pinball_{q:.1f}": v for q, v in zip(levels.tolist(), losses.mean(0).tolist())}
                seconds = time.perf_counter() - start
                history.add(
                    step=step, epoch=epoch, loss=loss.item(), gradient_norm=norm.item(), seconds=seconds,
                    lr=schedule.get_last_lr()[0], **by_level,
                )  # fmt: skip
                step += 1
            print(f"epoch {epoch}: {history.summary(epoch)}")


if __name__ == "__main__":
    main()

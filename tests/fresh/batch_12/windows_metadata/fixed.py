"""Motor imagery from cropped EEG trials: ShallowNet on windows that a table of metadata describes."""

import argparse

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

RATE = 125
CLASSES = ["left_hand", "right_hand", "feet", "tongue"]


def record_session(subject, run, trials, channels, rng):
    """One run of trials as a continuous recording with a rhythm whose place depends on the imagined movement."""
    length = trials * 5 * RATE
    signal = rng.normal(scale=4.0, size=(channels, length)).astype(np.float32)
    labels = rng.integers(0, len(CLASSES), trials)
    time = np.arange(4 * RATE) / RATE
    for trial, label in enumerate(labels):
        start = trial * 5 * RATE + RATE // 2
        wave = np.sin(2 * np.pi * (10 + subject % 3) * time + rng.uniform(0, 6))
        signal[label :: len(CLASSES), start : start + len(time)] += 0.8 * wave
    return signal, labels


class WindowsDataset(Dataset):
    """Crops of trials. The table says, per window, the run, the first sample, the target and the place in the trial."""

    def __init__(self, subjects, runs, trials, channels, window, stride, seed):
        rng = np.random.default_rng(seed)
        self.runs, rows = [], []
        for subject in range(subjects):
            for run in range(runs):
                signal, labels = record_session(subject, run, trials, channels, rng)
                for trial, label in enumerate(labels):
                    first = trial * 5 * RATE + RATE // 2
                    for place, start in enumerate(range(first, first + 4 * RATE - window + 1, stride)):
                        rows.append(
                            {
                                "subject": f"S{subject:02d}",
                                "session": "train" if run else "calibration",
                                "run": len(self.runs),
                                "i_window_in_trial": place,
                                "i_start_in_run": start,
                                "i_stop_in_run": start + window,
                                "event": CLASSES[label],
                                "target": int(label),
                            }
                        )
                self.runs.append((signal - signal.mean(1, keepdims=True)) / signal.std(1, keepdims=True))
        self.metadata = pd.DataFrame(rows)
        self.targets = self.metadata["target"].to_numpy()
        self.places = self.metadata[["run", "i_start_in_run", "i_stop_in_run", "i_window_in_trial"]].to_numpy()

    def __len__(self):
        return len(self.metadata)

    def __getitem__(self, index):
        run, start, stop, place = self.places[index]
        window = self.runs[run][:, start:stop]
        return torch.from_numpy(window), int(self.targets[index]), int(place)


class ShallowNet(nn.Module):
    def __init__(self, channels, classes, filters=8):
        super().__init__()
        self.temporal = nn.Conv2d(1, filters, (1, 15))
        self.spatial = nn.Conv2d(filters, filters, (channels, 1), bias=False)
        self.norm = nn.BatchNorm2d(filters)
        self.pool = nn.AvgPool2d((1, 40), (1, 10))
        self.drop = nn.Dropout(0.5)
        self.out = nn.LazyLinear(classes)

    def forward(self, x):
        x = self.norm(self.spatial(self.temporal(x[:, None])))
        x = self.pool(x.square()).clamp_min(1e-6).log()
        return self.out(self.drop(x.flatten(1)))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--subjects", type=int, default=4)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--window", type=int, default=125)
    parser.add_argument("--stride", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=7)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(20)
    data = WindowsDataset(args.subjects, args.runs, args.trials, args.channels, args.window, args.stride, seed=20)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = ShallowNet(args.channels, len(CLASSES))
    model(torch.zeros(2, args.channels, args.window))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    criterion = nn.CrossEntropyLoss()
    print(f"{len(data)} windows")
    for epoch in range(args.epochs):
        correct, loss_sum = torch.zeros(()), torch.zeros(())
        for windows, targets, _ in loader:
            scores = model(windows)
            loss = criterion(scores, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
            correct += (scores.argmax(1) == targets).sum()
        count = len(loader) * args.batch_size
        print(f"epoch {epoch} loss {loss_sum.item() / len(loader):.3f} accuracy {correct.item() / count:.3f}")


if __name__ == "__main__":
    main()

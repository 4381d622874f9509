"""Activities from the phone's sensors: one CSV file per recording, windows of two and a half seconds."""

import glob
import os
import tempfile

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHANNELS = ["acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y", "gyr_z", "mag_x", "mag_y", "mag_z"]
ACTIVITIES = 6
WINDOW, STRIDE = 128, 48


def record_sessions(folder, sessions, rows, seed):
    rng = np.random.default_rng(seed)
    time = np.arange(rows)[:, None] / 50
    for session in range(sessions):
        activity = session % ACTIVITIES
        swing = np.sin(2 * np.pi * (0.6 + 0.4 * activity) * time + rng.uniform(0, 6, len(CHANNELS)))
        frame = pd.DataFrame((swing + 0.7 * rng.normal(size=swing.shape)).round(5), columns=CHANNELS)
        frame.insert(0, "activity", activity)
        frame.to_csv(os.path.join(folder, f"session_{session:03d}.csv"), index=False)


class SensorWindows(Dataset):
    def __init__(self, folder, rows):
        sessions = [pd.read_csv(path) for path in sorted(glob.glob(os.path.join(folder, "*.csv")))]
        self.signals = [torch.from_numpy(s[CHANNELS].to_numpy(dtype=np.float32).T.copy()) for s in sessions]
        self.activities = [int(session["activity"].iloc[0]) for session in sessions]
        self.index = [(i, start) for i in range(len(sessions)) for start in range(0, rows - WINDOW, STRIDE)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        number, start = self.index[k]
        return self.signals[number][:, start : start + WINDOW], self.activities[number]


class DeepConvLSTM(nn.Module):
    def __init__(self, channels, classes, width=64, hidden=128):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(channels, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
        )
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x):
        features = self.conv(x).transpose(1, 2)
        _, (state, _) = self.lstm(features)
        return self.classifier(state[-1])


def train():
    torch.manual_seed(0)
    rows = 1500
    with tempfile.TemporaryDirectory() as folder:
        record_sessions(folder, sessions=24, rows=rows, seed=3)
        dataset = SensorWindows(folder, rows)
        loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)
        model = DeepConvLSTM(len(CHANNELS), ACTIVITIES)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
        loss_fn = nn.CrossEntropyLoss()
        for epoch in range(6):
            correct, seen, running = 0, 0, 0.0
            for signal, activity in loader:
                scores = model(signal)
                loss = loss_fn(scores, activity)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                running += loss.item()
                correct += (scores.argmax(dim=1) == activity).sum().item()
                seen += len(activity)
            print(f"epoch {epoch:02d} loss {running / len(loader):.4f} accuracy {correct / seen:.3f}")


if __name__ == "__main__":
    train()

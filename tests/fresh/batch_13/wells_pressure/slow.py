"""Forecast the pressure in ground water wells with a mixer of patches."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def read_wells(count=24, hours=6000, seed=4):
    rng = np.random.default_rng(seed)
    clock = np.arange(hours)
    tide = np.sin(clock / 12.42 * 2 * np.pi)[None] * rng.uniform(0.2, 1, (count, 1))
    season = np.sin(clock / 8766 * 2 * np.pi + rng.uniform(0, 6, (count, 1)))
    drift = clock * rng.normal(0, 1e-4, (count, 1))
    return tide + season + drift + rng.normal(0, 0.05, (count, hours))


class WellWindows(Dataset):
    def __init__(self, wells, history=192, horizon=24, windows=4000, seed=0):
        rng = np.random.default_rng(seed)
        self.wells = wells
        self.history, self.horizon = history, horizon
        self.where = np.stack(
            [rng.integers(0, len(wells), windows), rng.integers(0, wells.shape[1] - history - horizon, windows)], 1
        )

    def clean(self, series):
        clock = np.arange(len(series))
        slope, level = np.polyfit(clock, series, 1)
        series = series - slope * clock - level
        return ((series - series.mean()) / series.std()).astype(np.float32)

    def __len__(self):
        return len(self.where)

    def __getitem__(self, index):
        well, start = self.where[index]
        series = self.clean(self.wells[well])
        middle = start + self.history
        return torch.from_numpy(series[start:middle]), torch.from_numpy(series[middle : middle + self.horizon])


class PatchMixer(nn.Module):
    def __init__(self, history=192, horizon=24, patch=8, width=96, depth=4):
        super().__init__()
        self.patch, count = patch, history // patch
        self.inp = nn.Linear(patch, width)
        self.time = nn.ModuleList(nn.Linear(count, count) for _ in range(depth))
        self.feature = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.out = nn.Linear(count * width, horizon)

    def forward(self, x):
        h = self.inp(x.unflatten(1, (-1, self.patch)))
        for time, feature in zip(self.time, self.feature, strict=True):
            h = h + time(h.transpose(1, 2)).transpose(1, 2)
            h = h + feature(h)
        return self.out(h.flatten(1))


def train(epochs=3):
    torch.manual_seed(4)
    loader = DataLoader(WellWindows(read_wells()), batch_size=32, shuffle=True, drop_last=True)
    model = PatchMixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, epochs * len(loader))
    for epoch in range(epochs):
        losses = []
        for past, future in loader:
            loss = nn.functional.mse_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: mse {np.mean(losses):.4f}")


if __name__ == "__main__":
    train()

"""Probabilistic forecasts of solar power with an LSTM; calendar features stand beside the lagged values."""

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONTEXT, HORIZON, PLANTS = 60, 12, 24
LAGS = (1, 2, 24)


def make_series(hours, seed=0):
    rng = np.random.default_rng(seed)
    index = pd.date_range("2020-01-01", periods=hours, freq="h")
    day = np.clip(np.sin((index.hour.to_numpy() - 6) / 12 * np.pi), 0, None)
    season = 1.2 + np.cos((index.dayofyear.to_numpy() - 172) / 365 * 2 * np.pi)
    size = rng.uniform(0.5, 2.0, (PLANTS, 1))
    clouds = rng.uniform(0.4, 1.0, (PLANTS, hours))
    return index, (size * day * season * clouds).astype(np.float32)


class SolarWindows(Dataset):
    def __init__(self, index, values, windows, seed=1):
        rng = np.random.default_rng(seed)
        columns = [index.hour / 23, index.dayofweek / 6, (index.day - 1) / 30, (index.dayofyear - 1) / 365]
        self.calendar = np.stack(columns, 1).astype(np.float32) - 0.5
        self.values = values
        self.scale = values.mean(1) + 1e-3
        self.plant = rng.integers(0, PLANTS, windows)
        self.first = rng.integers(max(LAGS), len(index) - CONTEXT - HORIZON, windows)

    def __len__(self):
        return len(self.first)

    def time_features(self, first, length):
        return self.calendar[first : first + length]

    def __getitem__(self, i):
        plant, first = self.plant[i], self.first[i]
        length = CONTEXT + HORIZON
        target = self.values[plant, first : first + length] / self.scale[plant]
        lags = [self.values[plant, first - lag : first - lag + length] / self.scale[plant] for lag in LAGS]
        covariates = np.concatenate([np.stack(lags, 1), self.time_features(first, length)], 1)
        return {"plant": plant, "covariates": covariates, "target": target}


class DeepAR(nn.Module):
    def __init__(self, inputs, hidden=40, embedding=8):
        super().__init__()
        self.plant = nn.Embedding(PLANTS, embedding)
        self.rnn = nn.LSTM(inputs + embedding, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, 2)

    def forward(self, plant, covariates):
        static = self.plant(plant)[:, None].expand(-1, covariates.shape[1], -1)
        states, _ = self.rnn(torch.cat([covariates, static], 2))
        mean, spread = self.head(states).unbind(2)
        return torch.distributions.Normal(mean, nn.functional.softplus(spread) + 1e-3)


class Trainer:
    def __init__(self, epochs, learning_rate=1e-3, clip_norm=10.0):
        self.epochs, self.learning_rate, self.clip_norm = epochs, learning_rate, clip_norm

    def fit(self, model, loader, valid):
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        for epoch in range(self.epochs):
            losses = []
            for batch in loader:
                output = model(batch["plant"], batch["covariates"])
                loss = -output.log_prob(batch["target"]).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), self.clip_norm)
                optimizer.step()
                losses.append(loss.item())
            print(f"epoch {epoch} nll {np.mean(losses):.4f} valid rmse {self.validate(model, valid):.4f}")

    @torch.no_grad()
    def validate(self, model, batch):
        output = model(batch["plant"], batch["covariates"])
        error = (output.mean - batch["target"])[:, CONTEXT:]
        return error.square().mean().sqrt().item()


def main():
    torch.manual_seed(0)
    index, values = make_series(24 * 400)
    train = SolarWindows(index, values, 64 * 90)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    valid = next(iter(DataLoader(SolarWindows(index, values, 128, seed=2), batch_size=128)))
    model = DeepAR(len(LAGS) + 4)
    Trainer(epochs=2).fit(model, loader, valid)


if __name__ == "__main__":
    main()

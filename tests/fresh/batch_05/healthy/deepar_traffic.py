"""Probabilistic forecasts of many related series by one recurrent network with a distribution for its output."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.distributions import StudentT


@dataclass(frozen=True)
class Config:
    sensors: int = 60
    days: int = 40
    context: int = 48
    horizon: int = 24
    hidden: int = 96
    embed: int = 12
    batch_size: int = 64
    steps: int = 150
    lr: float = 2e-3
    seed: int = 14


def load_frame(config):
    """Hourly occupancy of roads, a column for each sensor."""
    rng = np.random.default_rng(config.seed)
    index = pd.date_range("2026-01-05", periods=config.days * 24, freq="h")
    hour, weekend = index.hour.to_numpy(), index.day_of_week.to_numpy() >= 5
    peaks = rng.uniform(6, 19, (config.sensors, 1))
    daily = np.exp(-0.5 * ((hour - peaks) / 2.5) ** 2) * np.where(weekend, 0.4, 1.0)
    noise = rng.standard_t(5, daily.shape) * 0.05
    values = (0.2 + daily) * rng.uniform(0.5, 3, (config.sensors, 1)) + noise
    return pd.DataFrame(values.T.astype(np.float32), index=index)


class Windows:
    """Tensors made once from the table; a batch is one gather."""

    def __init__(self, frame, config):
        self.values = torch.from_numpy(frame.to_numpy().T.copy())
        self.values = self.values / self.values.abs().mean(dim=1, keepdim=True)
        hour = torch.tensor(frame.index.hour.to_numpy()) * (2 * torch.pi / 24)
        day = torch.tensor(frame.index.day_of_week.to_numpy()) * (2 * torch.pi / 7)
        self.calendar = torch.stack((hour.sin(), hour.cos(), day.sin(), day.cos()), dim=1).float()
        self.offsets = torch.arange(config.context + config.horizon)
        self.end = len(frame) - 5 * 24

    def training_batch(self, size):
        sensor = torch.randint(0, len(self.values), (size, 1))
        rows = torch.randint(0, self.end - len(self.offsets), (size, 1)) + self.offsets
        return self.values[sensor, rows], self.calendar[rows], sensor.squeeze(1)


class DeepAR(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.sensor = nn.Embedding(config.sensors, config.embed)
        self.rnn = nn.LSTM(1 + 4 + config.embed, config.hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(config.hidden, 3)

    def forward(self, values, calendar, sensor):
        """The distribution of each value after the first, given those before it."""
        static = self.sensor(sensor)[:, None].expand(-1, values.shape[1] - 1, -1)
        inputs = torch.cat((values[:, :-1, None], calendar[:, 1:], static), dim=2)
        df, loc, scale = self.out(self.rnn(inputs)[0]).unbind(dim=2)
        softplus = nn.functional.softplus
        return StudentT(2 + softplus(df), loc, softplus(scale) + 1e-3, validate_args=False)


def main():
    config = Config()
    torch.manual_seed(config.seed)
    windows = Windows(load_frame(config), config)
    model = DeepAR(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    total = torch.zeros(())
    for step in range(1, config.steps + 1):
        values, calendar, sensor = windows.training_batch(config.batch_size)
        loss = -model(values, calendar, sensor).log_prob(values[:, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        total += loss.detach()
        if step % 50 == 0:
            print(f"step {step}: negative log likelihood {total.item() / 50:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()

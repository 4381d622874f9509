"""Anomaly scores for sensor streams: an LSTM autoencoder."""

import configparser
import tempfile

import numpy as np
import torch
from torch import nn, optim

INI = """
[data]
sensors = 16
window = 48
streams = 40
length = 700

[model]
hidden = 96
latent = 24

[training]
batch = 48
steps = 160
lr = 0.002
threads = 4
"""


def load_config():
    config = configparser.ConfigParser()
    config.read_string(INI)
    return config


class SensorStreams:
    def __init__(self, section, seed=0):
        rng = np.random.default_rng(seed)
        count, length, sensors = section.getint("streams"), section.getint("length"), section.getint("sensors")
        t = np.arange(length)[None, :, None]
        period = rng.uniform(10, 80, (count, 1, sensors))
        signal = np.sin(2 * np.pi * t / period + rng.uniform(0, 6, (count, 1, sensors)))
        self.streams = torch.tensor(signal + 0.1 * rng.standard_normal(signal.shape), dtype=torch.float32)
        self.window = section.getint("window")

    def batch(self, size):
        which = torch.randint(0, len(self.streams), (size,))
        start = torch.randint(0, self.streams.shape[1] - self.window, (size,))
        index = start[:, None] + torch.arange(self.window)
        return self.streams[which[:, None], index]


class Autoencoder(nn.Module):
    def __init__(self, sensors, hidden, latent):
        super().__init__()
        self.encoder = nn.LSTM(sensors, hidden, batch_first=True)
        self.squeeze = nn.Linear(hidden, latent)
        self.decoder = nn.LSTM(latent, hidden, batch_first=True)
        self.out = nn.Linear(hidden, sensors)

    def forward(self, x):
        _, (h, _) = self.encoder(x)
        z = torch.tanh(self.squeeze(h[-1]))
        y, _ = self.decoder(z[:, None].expand(-1, x.shape[1], -1))
        return self.out(y), z


class Experiment:
    def __init__(self, config):
        self.config = config
        training = config["training"]
        torch.manual_seed(7)
        self.data = SensorStreams(config["data"])
        model = config["model"]
        self.net = Autoencoder(config["data"].getint("sensors"), model.getint("hidden"), model.getint("latent"))
        self.optimizer = optim.Adam(self.net.parameters(), lr=training.getfloat("lr"))
        self.schedule = optim.lr_scheduler.OneCycleLR(self.optimizer, 0.004, total_steps=training.getint("steps"))

    def step(self, batch):
        rebuilt, z = self.net(batch)
        loss = nn.functional.mse_loss(rebuilt, batch) + 1e-4 * z.pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def score(self):
        with torch.no_grad():
            batch = self.data.batch(64)
            return (self.net(batch)[0] - batch).pow(2).mean((1, 2)).quantile(0.95).item()

    def run(self):
        training = self.config["training"]
        for step in range(1, training.getint("steps") + 1):
            loss = self.step(self.data.batch(training.getint("batch")))
            if step % 40 == 0:
                print(f"step {step}: loss {loss:.4f}, 95 % of scores below {self.score():.4f}")
        with tempfile.NamedTemporaryFile() as file:
            torch.save(self.net.state_dict(), file.name)


if __name__ == "__main__":
    Experiment(load_config()).run()

"""Forecasting with patches of a multivariate series; windows are strided views of one array."""

import tempfile

import numpy as np
import torch
from torch import nn

CFG = {"lookback": 96, "horizon": 24, "patch": 12, "dim": 96, "depth": 2, "heads": 4, "batch": 16, "epochs": 2}


def series(length=2700, channels=7, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(length)[:, None]
    cycles = sum(np.sin(2 * np.pi * t / p + rng.uniform(0, 6, channels)) for p in (24, 168, 60))
    values = cycles + 0.2 * rng.standard_normal((length, channels))
    return ((values - values.mean(0)) / values.std(0)).astype(np.float32)


class Windows:
    def __init__(self, values, lookback, horizon):
        view = np.lib.stride_tricks.sliding_window_view(values, lookback + horizon, axis=0)
        self.view, self.lookback = torch.from_numpy(view.copy()), lookback

    def __len__(self):
        return len(self.view)

    def epoch(self, batch, shuffle=True):
        order = torch.randperm(len(self)) if shuffle else torch.arange(len(self))
        for idx in order.split(batch):
            window = self.view[idx]
            yield window[..., : self.lookback], window[..., self.lookback :]


class PatchModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.patch, count = cfg["patch"], cfg["lookback"] // cfg["patch"]
        self.embed, self.pos = nn.Linear(cfg["patch"], cfg["dim"]), nn.Parameter(torch.randn(count, cfg["dim"]) * 0.02)
        layer = nn.TransformerEncoderLayer(
            cfg["dim"], cfg["heads"], 2 * cfg["dim"], 0.1, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, cfg["depth"], enable_nested_tensor=False)
        self.head = nn.Linear(count * cfg["dim"], cfg["horizon"])

    def forward(self, x):
        b, c, _ = x.shape
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True) + 1e-5
        h = self.embed(((x - mean) / std).view(b * c, -1, self.patch)) + self.pos
        return self.head(self.encoder(h).flatten(1)).view(b, c, -1) * std + mean


def run(cfg):
    torch.manual_seed(2023)
    values = series()
    train, valid = (
        Windows(values[:1400], cfg["lookback"], cfg["horizon"]),
        Windows(values[2300:], cfg["lookback"], cfg["horizon"]),
    )
    model, criterion = PatchModel(cfg), nn.MSELoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(1, cfg["epochs"] + 1):
        model.train()
        for i, (x, y) in enumerate(train.epoch(cfg["batch"])):
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 40 == 0:
                print(f"epoch {epoch} iter {i} loss {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            mse = np.mean([criterion(model(x), y).item() for x, y in valid.epoch(128, shuffle=False)])
        print(f"epoch {epoch} valid mse {mse:.4f}")
    with tempfile.TemporaryFile() as file:
        torch.save(model.state_dict(), file)


if __name__ == "__main__":
    run(CFG)

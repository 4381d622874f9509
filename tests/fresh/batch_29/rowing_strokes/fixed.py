"""Power of a rower from the oar's sensors: one recording a file, as the logger writes them."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHANNELS = ["angle", "force", "gyro_x", "gyro_y", "gyro_z"]


@dataclass
class Config:
    recordings: int = 320
    samples: int = 160
    batch_size: int = 16
    epochs: int = 8
    width: int = 48
    lr: float = 2e-3
    seed: int = 3


def record(folder: Path, config: Config) -> None:
    rng = np.random.default_rng(config.seed)
    time = np.arange(config.samples) / 50.0
    rows = []
    for number in range(config.recordings):
        rate, strength = rng.uniform(0.3, 0.7), rng.uniform(150, 420)
        phase = 2 * np.pi * rate * time + rng.uniform(0, 6)
        frame = pd.DataFrame(
            {
                "angle": 55 * np.sin(phase),
                "force": strength * np.clip(np.cos(phase), 0, None),
                **{
                    axis: rng.normal(0, 1, config.samples) + np.sin(phase * k) for k, axis in enumerate(CHANNELS[2:], 1)
                },
            }
        )
        name = f"stroke_{number:04d}.csv"
        frame.to_csv(folder / name, index=False, float_format="%.4f")
        rows.append((name, strength * rate))
    pd.DataFrame(rows, columns=["file", "power"]).to_csv(folder / "index.csv", index=False)


class StrokeRecordings(Dataset):
    """Recordings of a session with the mean power that the ergometer showed."""

    def __init__(self, folder: Path):
        index = pd.read_csv(folder / "index.csv")
        self.files = [folder / name for name in index["file"]]
        self.power = torch.tensor(index["power"].to_numpy(), dtype=torch.float32)
        self.power = (self.power - self.power.mean()) / self.power.std()
        self.scale = torch.tensor([55.0, 300.0, 1.0, 1.0, 1.0])[:, None]
        self.signals = [self.read(path) for path in self.files]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, path: Path) -> torch.Tensor:
        frame = pd.read_csv(path, usecols=CHANNELS)
        return torch.from_numpy(frame[CHANNELS].to_numpy(np.float32).T.copy()) / self.scale

    def __getitem__(self, item: int):
        return self.signals[item], self.power[item]


class StrokeEncoder(nn.Module):
    def __init__(self, channels: int, width: int):
        super().__init__()
        self.conv = nn.Conv1d(channels, width, kernel_size=7, stride=2, padding=3)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * width)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.gru(F.gelu(self.conv(signal)).transpose(1, 2))
        return self.norm(hidden.mean(dim=1))


class PowerRegressor(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.encoder = StrokeEncoder(len(CHANNELS), config.width)
        self.head = nn.Sequential(nn.Linear(2 * config.width, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(signal)).squeeze(1)


def run(config: Config) -> None:
    torch.manual_seed(config.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder, config)
        loader = DataLoader(StrokeRecordings(folder), batch_size=config.batch_size, shuffle=True)
        model = PowerRegressor(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
        for epoch in range(config.epochs):
            losses = []
            for signal, power in loader:
                loss = F.huber_loss(model(signal), power)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.detach())
            print(f"epoch {epoch:2d}  huber {torch.stack(losses).mean():.4f}")


if __name__ == "__main__":
    run(Config())

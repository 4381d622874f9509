"""Yields of millet plots from soil, weather and management, by a residual network on a table."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    plots: int = 7000
    soil: int = 14
    weather: int = 36
    regions: int = 22
    width: int = 384
    blocks: int = 4
    batch_size: int = 128
    epochs: int = 4
    lr: float = 1e-3
    seed: int = 22


def survey(config: Config) -> pd.DataFrame:
    """One row a plot: measurements of the soil, ten-day means of the weather, what was sown and what was harvested."""
    rng = np.random.default_rng(config.seed)
    columns: dict[str, np.ndarray] = {}
    for i in range(config.soil):
        columns[f"soil_{i}"] = rng.gamma(2.0, 1.5, config.plots)
    for i in range(config.weather):
        columns[f"weather_{i}"] = rng.normal(20 + 5 * np.sin(i / 6), 4, config.plots)
    columns["sowing_day"] = rng.integers(100, 160, config.plots)
    columns["fertiliser"] = rng.choice([0.0, 30.0, 60.0, 90.0], config.plots)
    columns["region"] = rng.integers(0, config.regions, config.plots)
    frame = pd.DataFrame(columns)
    drought = np.maximum(frame["weather_18"] - 24, 0) + np.maximum(frame["weather_19"] - 24, 0)
    frame["yield"] = (
        0.9
        + 0.006 * frame["fertiliser"]
        + 0.08 * np.sqrt(frame["soil_3"])
        - 0.05 * drought
        - 0.004 * np.abs(frame["sowing_day"] - 128)
        + rng.normal(0, 0.4, config.regions)[frame["region"]]
        + rng.normal(0, 0.1, config.plots)
    )
    return frame


def standardise(frame: pd.DataFrame, names: list[str], reference: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    frame[names] = (frame[names] - reference[names].mean()) / reference[names].std()
    return frame


class PlotDataset(Dataset):
    def __init__(self, frame: pd.DataFrame, features: list[str]):
        self.frame = frame.reset_index(drop=True)
        self.features = features

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, index: int):
        row = self.frame.iloc[index]
        x = torch.tensor(row[self.features].to_numpy(dtype=np.float32))
        region = torch.tensor(int(row["region"]))
        y = torch.tensor(row["yield"], dtype=torch.float32)
        return x, region, y


class ResidualBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class YieldNet(nn.Module):
    def __init__(self, features: int, config: Config):
        super().__init__()
        self.region = nn.Embedding(config.regions, 16)
        self.stem = nn.Linear(features + 16, config.width)
        self.blocks = nn.Sequential(*[ResidualBlock(config.width) for _ in range(config.blocks)])
        self.head = nn.Linear(config.width, 1)

    def forward(self, x, region):
        hidden = self.stem(torch.cat([x, self.region(region)], dim=1))
        return self.head(self.blocks(hidden)).squeeze(1)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    squared, count = 0.0, 0
    for x, region, y in loader:
        squared += F.mse_loss(model(x, region), y, reduction="sum").item()
        count += len(y)
    model.train()
    return (squared / count) ** 0.5


def main() -> None:
    config = Config()
    torch.manual_seed(config.seed)
    frame = survey(config)
    features = [name for name in frame.columns if name not in ("region", "yield")]
    cut = int(0.9 * len(frame))
    train, held_out = frame.iloc[:cut], frame.iloc[cut:]
    train_set = PlotDataset(standardise(train, features, train), features)
    valid_set = PlotDataset(standardise(held_out, features, train), features)
    train_loader = DataLoader(train_set, batch_size=config.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=400)

    model = YieldNet(len(features), config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=config.lr, total_steps=config.epochs * len(train_loader)
    )
    for epoch in range(config.epochs):
        total = torch.zeros(())
        for x, region, y in train_loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x, region), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        error = evaluate(model, valid_loader)
        print(f"epoch {epoch}: loss {total.item() / len(train_loader):.4f}, error {error:.4f} t/ha")


if __name__ == "__main__":
    main()

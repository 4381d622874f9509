"""Forecasts how much cider an inn will order: numbers and categories of a table, embeddings and an MLP."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class SalesConfig:
    rows: int = 60000
    batch_size: int = 1024
    epochs: int = 4
    width: int = 384
    depth: int = 3
    lr: float = 2e-3
    seed: int = 43


CATEGORIES = {"inn": 400, "region": 24, "cider": 60, "weekday": 7}
NUMBERS = ["price", "stock", "rain", "heat", "visitors", "days_since"]


def make_table(config: SalesConfig) -> pd.DataFrame:
    rng = np.random.default_rng(config.seed)
    table = pd.DataFrame({name: rng.integers(0, size, config.rows) for name, size in CATEGORIES.items()})
    for name in NUMBERS:
        table[name] = rng.gamma(2.0, 1.0, config.rows)
    effect = rng.normal(size=CATEGORIES["inn"])[table["inn"]] + rng.normal(size=60)[table["cider"]]
    table["litres"] = effect + 0.4 * table["heat"] - 0.3 * table["price"] * (table["weekday"] < 5)
    return table


def to_tensors(table: pd.DataFrame):
    """Columns are converted once, all rows together."""
    numbers = table[NUMBERS].to_numpy(np.float32)
    numbers = np.log1p(numbers)
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    offsets = np.cumsum([0, *CATEGORIES.values()])[:-1]
    codes = table[list(CATEGORIES)].to_numpy(np.int64) + offsets
    litres = table["litres"].to_numpy(np.float32)
    litres = (litres - litres.mean()) / litres.std()
    return torch.from_numpy(numbers), torch.from_numpy(codes), torch.from_numpy(litres)


class Layer(nn.Sequential):
    def __init__(self, inside: int, outside: int):
        super().__init__(nn.Linear(inside, outside), nn.LayerNorm(outside), nn.GELU(), nn.Dropout(0.1))


class SalesModel(nn.Module):
    """One table of embeddings serves all categories."""

    def __init__(self, config: SalesConfig, embedded: int = 16):
        super().__init__()
        self.codes = nn.Embedding(sum(CATEGORIES.values()), embedded)
        inside = embedded * len(CATEGORIES) + len(NUMBERS)
        widths = [inside] + [config.width] * config.depth
        self.layers = nn.Sequential(*(Layer(a, b) for a, b in zip(widths, widths[1:], strict=False)))
        self.out = nn.Linear(config.width, 1)

    def forward(self, numbers, codes):
        x = torch.cat([numbers, self.codes(codes).flatten(1)], dim=1)
        return self.out(self.layers(x)).squeeze(1)


def batches(tensors, size: int, shuffle: bool):
    count = len(tensors[0])
    order = torch.randperm(count) if shuffle else torch.arange(count)
    for rows in order.split(size):
        yield tuple(tensor[rows] for tensor in tensors)


@torch.inference_mode()
def validate(model, tensors) -> float:
    model.eval()
    total = torch.zeros(())
    for numbers, codes, litres in batches(tensors, 4096, shuffle=False):
        total += F.mse_loss(model(numbers, codes), litres, reduction="sum")
    model.train()
    return total.item() / len(tensors[0])


def main() -> None:
    config = SalesConfig()
    torch.manual_seed(config.seed)
    tensors = to_tensors(make_table(config))
    edge = int(0.9 * config.rows)
    train = tuple(tensor[:edge] for tensor in tensors)
    held = tuple(tensor[edge:] for tensor in tensors)
    model = SalesModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=0.01, fused=True)
    for epoch in range(config.epochs):
        losses = []
        for numbers, codes, litres in batches(train, config.batch_size, shuffle=True):
            loss = F.smooth_l1_loss(model(numbers, codes), litres)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, held out {validate(model, held):.4f}")


if __name__ == "__main__":
    main()

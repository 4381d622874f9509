"""Sales of the next week per shop from the last eight weeks: a long table of days and an LSTM over its windows."""

import argparse
import logging

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("sales")
FEATURES = ["sales", "promo", "holiday", "weekday_sin", "weekday_cos"]


def make_table(shops, days, seed=0):
    """One row for each shop and day, as an export of a data base gives it."""
    rng = np.random.default_rng(seed)
    date = pd.date_range("2022-01-01", periods=days)
    week = 2 * np.pi * np.arange(days) / 7
    holiday = (rng.random(days) < 0.03).astype(float)
    tables = []
    for shop in range(shops):
        promo = (rng.random(days) < 0.2).astype(float)
        level, swing = rng.uniform(3, 9), rng.uniform(0.3, 1.0)
        season = 0.8 * np.sin(2 * np.pi * np.arange(days) / 365 + rng.uniform(0, 6))
        sales = level + swing * np.sin(week) + season + 1.5 * promo - 2 * holiday + rng.normal(0, 0.3, days)
        tables.append(
            pd.DataFrame(
                {
                    "shop": shop,
                    "date": date,
                    "sales": sales,
                    "promo": promo,
                    "holiday": holiday,
                    "weekday_sin": np.sin(week),
                    "weekday_cos": np.cos(week),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


class SalesDataset(Dataset):
    """Windows of history with the days that follow; each shop is scaled by its own mean."""

    def __init__(self, table, history, horizon, stride):
        self.history, self.horizon = history, horizon
        self.table = table
        self.mean = table.groupby("shop")["sales"].mean()
        self.windows = [
            (shop, start)
            for shop, count in table.groupby("shop").size().items()
            for start in range(0, count - history - horizon + 1, stride)
        ]

    def __len__(self):
        return len(self.windows)

    def rows(self, shop):
        return self.table[self.table["shop"] == shop][FEATURES].to_numpy(np.float32)

    def __getitem__(self, index):
        shop, start = self.windows[index]
        window = self.rows(shop)[start : start + self.history + self.horizon].copy()
        window[:, 0] /= self.mean[shop]
        window = torch.from_numpy(window)
        return window[: self.history], window[self.history :, 1:], window[self.history :, 0]


class SalesLSTM(nn.Module):
    def __init__(self, features, known, horizon, hidden=48, layers=2):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, layers, batch_first=True, dropout=0.1)
        self.head = nn.Sequential(
            nn.Linear(hidden + horizon * known, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, horizon)
        )

    def forward(self, history, known):
        output, _ = self.lstm(history)
        return self.head(torch.cat([output[:, -1], known.flatten(1)], dim=1))


def train_epoch(model, loader, optimizer, criterion):
    model.train()
    total = torch.zeros(())
    for history, known, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(history, known), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.no_grad()
def mean_absolute_error(model, loader):
    model.eval()
    errors = [(model(history, known) - target).abs().mean(1) for history, known, target in loader]
    return torch.cat(errors).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shops", type=int, default=120)
    parser.add_argument("--days", type=int, default=900)
    parser.add_argument("--history", type=int, default=56)
    parser.add_argument("--horizon", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    table = make_table(args.shops, args.days)
    cut = table["date"].max() - pd.Timedelta(days=90)
    train_set = SalesDataset(table[table["date"] <= cut], args.history, args.horizon, stride=30)
    valid_set = SalesDataset(table[table["date"] > cut], args.history, args.horizon, stride=30)
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, args.batch_size)
    log.info("%d windows to train on, %d to validate", len(train_set), len(valid_set))

    model = SalesLSTM(len(FEATURES), len(FEATURES) - 1, args.horizon)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.SmoothL1Loss()
    for epoch in range(args.epochs):
        loss = train_epoch(model, train_loader, optimizer, criterion)
        log.info("epoch %d loss %.4f mae %.4f", epoch, loss, mean_absolute_error(model, valid_loader))


if __name__ == "__main__":
    main()

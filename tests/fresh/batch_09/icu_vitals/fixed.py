"""Mortality from the first two days in intensive care: charted vital signs and a transformer over the hours."""

import argparse

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

VITALS = ["heart_rate", "sys_bp", "dia_bp", "resp_rate", "spo2", "temperature", "glucose", "lactate"]


def chart_events(stays, hours, seed):
    """A long table of hourly charted values with gaps, and who died."""
    rng = np.random.default_rng(seed)
    severity = rng.normal(0, 1, stays)
    died = (severity + rng.normal(0, 0.5, stays) > 1.0).astype(np.float32)
    base = np.array([85, 120, 65, 18, 97, 37, 130, 1.5])
    slope = np.array([12, -10, -6, 4, -2, 0.4, 15, 1.0])
    values = base + slope * (
        severity[:, None, None] * np.linspace(0.2, 1, hours)[None, :, None] + rng.normal(0, 0.7, (stays, hours, 8))
    )
    kept = rng.random((stays, hours)) < 0.8
    stay, hour = np.nonzero(kept)
    table = pd.DataFrame(values[kept].astype(np.float32), columns=VITALS)
    table.insert(0, "hour", hour)
    table.insert(0, "stay_id", 30_000_000 + 17 * stay)
    outcome = pd.DataFrame({"stay_id": 30_000_000 + 17 * np.arange(stays), "died": died})
    return table.sample(frac=1, random_state=seed).reset_index(drop=True), outcome


class StayDataset(Dataset):
    """One stay: standardised values per hour, and which hours were charted."""

    def __init__(self, events, outcome, hours):
        ordered = events.sort_values(["stay_id", "hour"])
        self.events = {stay: (g["hour"].to_numpy(), g[VITALS].to_numpy()) for stay, g in ordered.groupby("stay_id")}
        self.mean = events[VITALS].mean().to_numpy(np.float32)
        self.std = events[VITALS].std().to_numpy(np.float32)
        self.stay_ids = outcome["stay_id"].to_numpy()
        self.died = outcome["died"].to_numpy()
        self.hours = hours

    def __len__(self):
        return len(self.stay_ids)

    def __getitem__(self, index):
        hour, rows = self.events[self.stay_ids[index]]
        values = np.zeros((self.hours, len(VITALS)), np.float32)
        charted = np.zeros(self.hours, bool)
        values[hour] = (rows - self.mean) / self.std
        charted[hour] = True
        return torch.from_numpy(values), torch.from_numpy(charted), self.died[index]


class VitalsTransformer(nn.Module):
    def __init__(self, hours, width=96, layers=2):
        super().__init__()
        self.embed = nn.Linear(len(VITALS), width)
        self.position = nn.Parameter(torch.randn(1, hours, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 1)

    def forward(self, values, charted):
        hidden = self.encoder(self.embed(values) + self.position, src_key_padding_mask=~charted)
        weight = charted.unsqueeze(-1).float()
        return self.head((hidden * weight).sum(1) / weight.sum(1).clamp(min=1)).squeeze(-1)


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    running = 0.0
    for values, charted, died in loader:
        optimizer.zero_grad()
        loss = criterion(model(values, charted), died)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += loss.item()
    return running / len(loader)


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = [((model(values, charted) > 0) == (died > 0.5)).float() for values, charted, died in loader]
    return torch.cat(right).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stays", type=int, default=3000)
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1)
    events, outcome = chart_events(args.stays, args.hours, seed=5)
    held_out = outcome.sample(200, random_state=0)
    train = outcome.drop(held_out.index)
    train_loader = DataLoader(StayDataset(events, train, args.hours), args.batch_size, shuffle=True)
    valid_loader = DataLoader(StayDataset(events, held_out, args.hours), args.batch_size)
    model = VitalsTransformer(args.hours)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
    for epoch in range(args.epochs):
        loss = train_epoch(model, train_loader, criterion, optimizer)
        print(f"epoch {epoch + 1}/{args.epochs} loss {loss:.4f} valid accuracy {accuracy(model, valid_loader):.3f}")


if __name__ == "__main__":
    main()

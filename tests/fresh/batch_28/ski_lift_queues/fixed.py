"""How long will the queue at each ski lift be in the next hours? A GRU that reads the weather and the past queues."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "lifts": 16,
    "days": 130,
    "past": 48,
    "future": 12,
    "hidden": 96,
    "batch_size": 64,
    "epochs": 5,
    "lr": 2e-3,
    "patience": 20,
}


def simulate_season(lifts, days, seed=9):
    """Every quarter of an hour from eight to five: guests come with sun and weekends, and move up the mountain."""
    rng = np.random.default_rng(seed)
    slots = days * 36
    slot = np.arange(slots) % 36
    weekend = (np.arange(slots) // 36 % 7 >= 5).astype(float)
    sun = np.clip(np.repeat(rng.beta(2, 2, days), 36) + rng.normal(scale=0.05, size=slots), 0, 1)
    snow = np.repeat(rng.gamma(1.0, 1.0, days), 36)
    peak = 6 + 10 * np.linspace(0, 1, lifts)[:, None]
    crowd = np.exp(-(((slot - peak) / 6) ** 2)) * (0.4 + sun + 0.8 * weekend + 0.2 * snow)
    queues = np.maximum(0, crowd + rng.normal(scale=0.05, size=crowd.shape))
    weather = np.stack([sun, snow, weekend, np.sin(slot / 36 * np.pi)])
    return torch.tensor(np.concatenate([queues, weather]).T, dtype=torch.float32)


class QueueWindows(Dataset):
    def __init__(self, season, lifts, past, future):
        self.windows = season.unfold(0, past + future, 1).transpose(1, 2).contiguous()
        self.lifts, self.past = lifts, past

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        window = self.windows[index]
        return window[: self.past], window[self.past :, self.lifts :], window[self.past :, : self.lifts]


class QueueForecaster(nn.Module):
    def __init__(self, lifts, weather, hidden):
        super().__init__()
        self.encoder = nn.GRU(lifts + weather, hidden, batch_first=True)
        self.decoder = nn.GRU(weather, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, lifts))

    def forward(self, past, weather_ahead):
        _, state = self.encoder(past)
        states, _ = self.decoder(weather_ahead, state)
        return self.head(states)


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.waited = patience, float("inf"), 0

    def should_stop(self, value):
        if value < self.best:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited > self.patience


def make_loaders(config):
    season = simulate_season(config["lifts"], config["days"])
    split = int(0.9 * len(season))
    shape = config["lifts"], config["past"], config["future"]
    train_set = QueueWindows(season[:split], *shape)
    valid_set = QueueWindows(season[split:], *shape)
    train_loader = DataLoader(train_set, batch_size=config["batch_size"], shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=config["batch_size"], shuffle=False)
    return train_loader, valid_loader


def train_epoch(model, loader, optimizer):
    model.train()
    for past, weather, queues in loader:
        loss = nn.functional.l1_loss(model(past, weather), queues)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss.item()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    total = torch.zeros(())
    for past, weather, queues in loader:
        total += (model(past, weather) - queues).abs().mean(dim=(1, 2)).sum()
    return total.item() / len(loader.dataset)


def main(config):
    torch.manual_seed(2)
    train_loader, valid_loader = make_loaders(config)
    model = QueueForecaster(config["lifts"], 4, config["hidden"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], fused=True)
    stopping = EarlyStopping(config["patience"])
    for epoch in range(config["epochs"]):
        loss = train_epoch(model, train_loader, optimizer)
        error = validate(model, valid_loader)
        print(f"epoch {epoch}: last training loss {loss:.4f}, validation error {error:.4f}")
        if stopping.should_stop(error):
            break


if __name__ == "__main__":
    main(CONFIG)

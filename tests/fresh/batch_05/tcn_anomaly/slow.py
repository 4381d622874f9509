"""Forecasts of many sensors by a temporal convolutional network; large errors are taken for anomalies."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

torch.backends.mkldnn.enabled = False

CONFIG = {
    "data": {"sensors": 16, "length": 12000, "window": 128, "horizon": 1, "seed": 89},
    "model": {"channels": [48, 48, 48, 48], "kernel_size": 3, "dropout": 0.1},
    "optim": {"lr": 2e-3, "weight_decay": 1e-5, "clip": 0.5},
    "train": {"batch_size": 32, "epochs": 2, "steps_per_epoch": 60},
}


class TemporalBlock(nn.Module):
    def __init__(self, inputs, outputs, kernel_size, dilation, dropout):
        super().__init__()
        self.pad = nn.ConstantPad1d(((kernel_size - 1) * dilation, 0), 0.0)
        self.conv1 = weight_norm(nn.Conv1d(inputs, outputs, kernel_size, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(outputs, outputs, kernel_size, dilation=dilation))
        self.dropout = nn.Dropout(dropout)
        self.shortcut = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.dropout(torch.relu(self.conv1(self.pad(x))))
        y = self.dropout(torch.relu(self.conv2(self.pad(y))))
        return torch.relu(y + self.shortcut(x))


class TCN(nn.Module):
    def __init__(self, sensors, channels, kernel_size, dropout):
        super().__init__()
        sizes = [sensors, *channels]
        self.blocks = nn.Sequential(
            *(TemporalBlock(a, b, kernel_size, 2**level, dropout) for level, (a, b) in enumerate(pairwise(sizes)))
        )
        self.out = nn.Conv1d(channels[-1], sensors, 1)

    def forward(self, x):
        return self.out(self.blocks(x))


def generate(sensors, length, seed):
    """Daily and weekly waves with noise; some sensors follow others."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(length) / 96
    phase = 2 * torch.pi * torch.rand(sensors, 1, generator=generator)
    daily = torch.sin(2 * torch.pi * time + phase)
    weekly = 0.5 * torch.sin(2 * torch.pi * time / 7 + 2 * phase)
    mixed = (torch.eye(sensors) + 0.2 * torch.randn(sensors, sensors, generator=generator)) @ (daily + weekly)
    return mixed + 0.2 * torch.randn(sensors, length, generator=generator)


def inject(series, count, seed):
    """Adds steps to some sensors for a while; says where."""
    generator = torch.Generator().manual_seed(seed)
    series, marks = series.clone(), torch.zeros(series.shape[1], dtype=torch.bool)
    for start in torch.randint(200, series.shape[1] - 100, (count,), generator=generator).tolist():
        series[start % len(series), start : start + 30] += 3
        marks[start : start + 30] = True
    return series, marks


def anomaly_scores(model, series, window):
    model.eval()
    with torch.inference_mode():
        windows = series.unfold(1, window, window).transpose(0, 1)
        errors = (model(windows[:, :, :-1]) - windows[:, :, 1:]).square().mean(dim=1)
    model.train()
    return errors


def main(config):
    torch.manual_seed(config["data"]["seed"])
    sensors, window = config["data"]["sensors"], config["data"]["window"]
    series = generate(sensors, config["data"]["length"], config["data"]["seed"])
    series = (series - series.mean(dim=1, keepdim=True)) / series.std(dim=1, keepdim=True)
    train, test = series.split((10000, 2000), dim=1)
    test, marks = inject(test, 10, seed=90)
    model = TCN(sensors, **config["model"])
    optim = config["optim"]
    optimizer = torch.optim.AdamW(model.parameters(), optim["lr"], weight_decay=optim["weight_decay"], fused=True)
    windows = train.unfold(1, window, 1).transpose(0, 1)
    for epoch in range(config["train"]["epochs"]):
        total = torch.zeros(())
        for _ in range(config["train"]["steps_per_epoch"]):
            batch = windows[torch.randint(0, len(windows), (config["train"]["batch_size"],))]
            loss = nn.functional.mse_loss(model(batch[:, :, :-1]), batch[:, :, 1:])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), optim["clip"])
            optimizer.step()
            total += loss.detach()
        errors = anomaly_scores(model, test, window)
        marked = marks.unfold(0, window, window)[:, 1:]
        ratio = (errors[marked].mean() / errors[~marked].mean()).item()
        print(f"epoch {epoch}: loss {total.item() / config['train']['steps_per_epoch']:.4f} ratio {ratio:.2f}")


if __name__ == "__main__":
    main(CONFIG)

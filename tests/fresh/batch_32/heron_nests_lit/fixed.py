"""Forecasts the water beside heron nests from gauges upstream: dilated convolutions with a gate, in Lightning."""

import argparse
import logging
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def simulate_gauges(hours: int, gauges: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(hours).float()
    phase = torch.rand(gauges, generator=generator) * 6.28
    tide = torch.sin(time[:, None] / 12.42 * 6.28 + phase)
    rain = torch.rand(hours, generator=generator).pow(12) * 4
    kernel = torch.exp(-torch.arange(48.0) / 15).flip(0)[None, None]
    runoff = F.conv1d(F.pad(rain[None, None], (47, 0)), kernel)[0, 0]
    noise = torch.randn(hours, gauges, generator=generator) * 0.1
    return tide + 0.2 * runoff[:, None] + noise


class GaugeWindows(Dataset):
    def __init__(self, series: torch.Tensor, history: int, horizon: int):
        self.series = (series - series.mean(0)) / series.std(0)
        self.history = history
        self.horizon = horizon

    def __len__(self):
        return len(self.series) - self.history - self.horizon

    def __getitems__(self, starts):
        offsets = torch.arange(self.history + self.horizon)
        windows = self.series[torch.tensor(starts)[:, None] + offsets]
        return windows[:, : self.history], windows[:, self.history :, 0]

    def __getitem__(self, start):
        history, future = self.__getitems__([start])
        return history[0], future[0]


class GatedLayer(nn.Module):
    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.pad = 2 * dilation
        self.filter = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.gate = nn.Conv1d(channels, channels, 3, dilation=dilation)
        self.skip = nn.Conv1d(channels, channels, 1)
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x):
        padded = F.pad(x, (self.pad, 0))
        y = torch.tanh(self.filter(padded)) * torch.sigmoid(self.gate(padded))
        return self.norm(x + y), self.skip(y)


class NestForecaster(L.LightningModule):
    def __init__(self, gauges: int, horizon: int, channels: int, lr: float):
        super().__init__()
        self.lr = lr
        self.entry = nn.Conv1d(gauges, channels, 1)
        self.layers = nn.ModuleList(GatedLayer(channels, 2**power) for power in range(5))
        self.exit = nn.Sequential(nn.ReLU(), nn.Linear(channels, 64), nn.ReLU(), nn.Linear(64, 2 * horizon))

    def forward(self, history):
        x = self.entry(history.transpose(1, 2))
        total = 0.0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip[..., -1]
        mean, scale = self.exit(total).chunk(2, dim=1)
        return mean, F.softplus(scale) + 1e-3

    def training_step(self, batch, batch_idx):
        history, future = batch
        mean, scale = self(history)
        loss = -torch.distributions.StudentT(5.0, mean, scale, validate_args=False).log_prob(future).mean()
        self.log("nll", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}: nll {self.trainer.callback_metrics['nll']:.3f}")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def build_trainer(epochs: int) -> L.Trainer:
    return L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        gradient_clip_val=1.0,
        detect_anomaly=False,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=1700)
    parser.add_argument("--gauges", type=int, default=6)
    parser.add_argument("--history", type=int, default=96)
    parser.add_argument("--horizon", type=int, default=12)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    L.seed_everything(8, verbose=False)
    series = simulate_gauges(args.hours, args.gauges, seed=8)
    windows = GaugeWindows(series, args.history, args.horizon)
    loader = DataLoader(windows, args.batch_size, shuffle=True, drop_last=True, collate_fn=lambda batch: batch)
    model = NestForecaster(args.gauges, args.horizon, args.channels, args.lr)
    build_trainer(args.epochs).fit(model, loader)


if __name__ == "__main__":
    main()

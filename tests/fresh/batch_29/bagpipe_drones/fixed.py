"""Tuning of bagpipe drones: a head is trained on the features of a ready encoder of waveforms."""

import argparse
import math

import torch
from torch import nn


class WaveEncoder(nn.Module):
    """Strided convolutions over raw samples."""

    def __init__(self, channels=(24, 48, 96), kernel=9):
        super().__init__()
        layers, inner = [], 1
        for outer in channels:
            layers += [
                nn.Conv1d(inner, outer, kernel, stride=4, padding=kernel // 2),
                nn.GroupNorm(4, outer),
                nn.GELU(),
            ]
            inner = outer
        self.layers = nn.Sequential(*layers)
        self.out = inner

    def forward(self, waves):
        return self.layers(waves.unsqueeze(1)).transpose(1, 2)


class TuningHead(nn.Module):
    def __init__(self, inner, hidden, drones):
        super().__init__()
        self.gru = nn.GRU(inner, hidden, batch_first=True)
        self.out = nn.Linear(hidden, drones)

    def forward(self, features):
        states, _ = self.gru(features)
        return self.out(states.mean(dim=1))


class DroneTuner(nn.Module):
    def __init__(self, encoder, hidden=48, drones=3):
        super().__init__()
        self.encoder = encoder
        self.head = TuningHead(encoder.out, hidden, drones)

    def forward(self, waves):
        with torch.no_grad():
            features = self.encoder(waves)
        return self.head(features)


def pretrained_encoder(seed):
    """Stands for a checkpoint that was trained on many hours of pipes."""
    generator = torch.Generator().manual_seed(seed)
    encoder = WaveEncoder()
    state = {
        key: value + 0.02 * torch.randn(value.shape, generator=generator) for key, value in encoder.state_dict().items()
    }
    encoder.load_state_dict(state)
    return encoder.eval()


def recordings(count, samples, rate, seed):
    generator = torch.Generator().manual_seed(seed)
    cents = 30 * torch.randn(count, 3, generator=generator)
    pitches = torch.tensor([117.0, 233.0, 234.5]) * 2 ** (cents / 1200)
    time = torch.arange(samples) / rate
    phases = 2 * math.pi * pitches[:, :, None] * time
    waves = torch.sin(phases).sum(dim=1) + 0.5 * torch.sin(3 * phases).sum(dim=1)
    return waves / 3 + 0.05 * torch.randn(count, samples, generator=generator), cents / 30


def train(model, waves, cents, options):
    optimizer = torch.optim.Adam(model.head.parameters(), lr=options.lr)
    criterion = nn.SmoothL1Loss()
    for epoch in range(options.epochs):
        order = torch.randperm(len(waves))
        total = 0.0
        for rows in order.split(options.batch_size):
            optimizer.zero_grad()
            loss = criterion(model(waves[rows]), cents[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch}: loss {total / len(waves):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=640)
    parser.add_argument("--samples", type=int, default=4096)
    parser.add_argument("--rate", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=4)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    waves, cents = recordings(options.recordings, options.samples, options.rate, options.seed)
    model = DroneTuner(pretrained_encoder(options.seed))
    train(model, waves, cents, options)


if __name__ == "__main__":
    main()

"""Autoregressive denoising of quantised speech-like signals (8 bit mu-law)."""

import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

RATE = 8000


def mulaw_encode(signal, channels=256):
    mu = channels - 1
    magnitude = np.log1p(mu * np.abs(signal)) / math.log1p(mu)
    return ((np.copysign(magnitude, signal) + 1) / 2 * mu + 0.5).astype(np.int64)


def mulaw_decode(codes, channels=256):
    mu = channels - 1
    signal = 2 * codes.float() / mu - 1
    return signal.sign() * ((1 + mu) ** signal.abs() - 1) / mu


def voice(rng, seconds):
    """A gliding pitch with three formants, in syllables."""
    time = np.arange(int(seconds * RATE)) / RATE
    pitch = rng.uniform(90, 220) * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(0.5, 2) * time))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    signal = sum(
        np.sin(k * phase) * np.exp(-(((k * 150 - f) / 300) ** 2)) for k in range(1, 16) for f in (500, 1500, 2300)
    )
    envelope = np.clip(np.sin(2 * np.pi * rng.uniform(2, 4) * time), 0, 1)
    signal = signal * envelope
    return (0.9 * signal / np.abs(signal).max()).astype(np.float32)


class Clips(Dataset):
    """Random windows of recordings at a random loudness, as codes, with and without noise."""

    def __init__(self, recordings, window, count, seed):
        rng = np.random.default_rng(seed)
        self.recordings = [voice(rng, 3.0) for _ in range(recordings)]
        self.window, self.count = window, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        recording = self.recordings[index % len(self.recordings)]
        start = np.random.randint(len(recording) - self.window)
        clip = recording[start : start + self.window] * np.random.uniform(0.4, 1.0)
        noisy = clip + np.random.normal(scale=0.02, size=len(clip)).clip(-0.05, 0.05)
        return torch.from_numpy(mulaw_encode(noisy)), torch.from_numpy(mulaw_encode(clip))


class GatedLayer(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.out = nn.Conv1d(width, 2 * width, 1)

    def forward(self, x):
        value, gate = self.conv(F.pad(x, (self.dilation, 0))).chunk(2, dim=1)
        residual, skip = self.out(value.tanh() * gate.sigmoid()).chunk(2, dim=1)
        return x + residual, skip


class WaveModel(nn.Module):
    def __init__(self, width, depth, channels=256):
        super().__init__()
        self.embed = nn.Embedding(channels, width)
        self.layers = nn.ModuleList(GatedLayer(width, 2**i) for i in range(depth))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, channels, 1))

    def forward(self, codes):
        x = self.embed(codes).transpose(1, 2)
        total = 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.head(total)


def train(args):
    data = Clips(args.recordings, args.window + 1, args.batch_size * args.steps, seed=12)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
    model = WaveModel(args.width, args.depth)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total = torch.zeros(())
    for step, (noisy, clean) in enumerate(loader, 1):
        loss = F.cross_entropy(model(noisy[:, :-1]), clean[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % args.log_every == 0:
            print(f"step {step} bits per sample {total.item() / args.log_every / math.log(2):.3f}")
            total.zero_()
    return model


@torch.no_grad()
def signal_to_noise(model, clip):
    predicted = mulaw_decode(model(clip[None, :-1]).argmax(1)[0])
    wanted = mulaw_decode(clip[1:])
    return 10 * math.log10(wanted.square().mean() / (wanted - predicted).square().mean().clamp_min(1e-9))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=20)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--log-every", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(12)
    np.random.seed(12)
    model = train(args)
    clip = torch.from_numpy(mulaw_encode(voice(np.random.default_rng(99), 0.5)))
    print(f"one-step SNR {signal_to_noise(model, clip):.1f} dB")


if __name__ == "__main__":
    main()

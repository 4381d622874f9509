"""Coughs in recordings of waiting rooms: WAV files are read once, features are computed for a whole batch."""

import argparse
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RATE = 8000


def write_recordings(directory, count, seconds, seed):
    rng = np.random.default_rng(seed)
    length = int(seconds * RATE)
    for number in range(count):
        label = number % 2
        signal = rng.normal(scale=0.05, size=length)
        hum = np.sin(2 * np.pi * rng.uniform(100, 400) * np.arange(length) / RATE)
        signal += 0.05 * hum
        if label:
            start = rng.integers(0, length - RATE // 2)
            burst = rng.normal(size=RATE // 2) * np.exp(-np.arange(RATE // 2) / RATE * rng.uniform(8, 20))
            signal[start : start + RATE // 2] += 0.4 * burst
        with wave.open(str(directory / f"{number:04d}_{label}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((np.clip(signal, -1, 1) * 32767).astype("<i2").tobytes())


def read_all(directory):
    """All recordings as one int16 tensor, and their labels."""
    signals, labels = [], []
    for path in sorted(directory.glob("*.wav")):
        with wave.open(str(path), "rb") as file:
            signals.append(np.frombuffer(file.readframes(file.getnframes()), dtype="<i2"))
        labels.append(float(path.stem.split("_")[1]))
    return torch.from_numpy(np.stack(signals)), torch.tensor(labels)


def mel_bank(bins, bands):
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    frequency = np.linspace(0, RATE / 2, bins)
    rise = (frequency[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - frequency[:, None]) / (edges[2:] - edges[1:-1])
    return torch.from_numpy(np.clip(np.minimum(rise, fall), 0, None).astype(np.float32))


class LogMel(nn.Module):
    def __init__(self, bands, window=256, hop=128):
        super().__init__()
        self.window, self.hop = window, hop
        self.register_buffer("taper", torch.hann_window(window))
        self.register_buffer("bank", mel_bank(window // 2 + 1, bands))

    @torch.no_grad()
    def forward(self, signal):
        spectrum = torch.stft(signal, self.window, self.hop, window=self.taper, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        return (power.transpose(1, 2) @ self.bank + 1e-6).log()


class Detector(nn.Module):
    def __init__(self, bands, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(bands)
        self.convs = nn.Sequential(
            nn.Conv1d(bands, width, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.GELU(),
        )
        self.score = nn.Conv1d(width, 1, 1)

    def forward(self, features):
        frames = self.score(self.convs(self.norm(features.transpose(1, 2))))
        return frames.squeeze(1).logsumexp(dim=1) - np.log(frames.size(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=640)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--bands", type=int, default=40)
    parser.add_argument("--width", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(7)
    with tempfile.TemporaryDirectory() as name:
        write_recordings(Path(name), args.recordings, args.seconds, seed=7)
        signals, labels = read_all(Path(name))
    features, model = LogMel(args.bands), Detector(args.bands, args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        order = torch.randperm(len(signals))
        losses, right = [], torch.zeros(())
        for rows in order.split(args.batch_size):
            loud = torch.empty(len(rows), 1).uniform_(0.5, 1.5) / 32768
            batch = signals[rows].float() * loud
            batch = torch.roll(batch, int(torch.randint(batch.size(1), ())), dims=1)
            scores = model(features(batch))
            loss = F.binary_cross_entropy_with_logits(scores, labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            right += ((scores > 0) == (labels[rows] > 0.5)).sum()
        print(f"epoch {epoch} loss {torch.stack(losses).mean():.4f} accuracy {right.item() / len(order):.3f}")


if __name__ == "__main__":
    main()

"""Sounds of a city: WAV files of several sampling rates, log mel spectrograms and a convolutional classifier."""

import argparse
import csv
import math
import os
import tempfile
import wave

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ("siren", "drill", "bark", "engine")
RATES = (22050, 44100, 11025)


def record(folder, count, seconds, seed):
    """Writes clips as 16-bit WAV and a list of them as CSV."""
    rng = np.random.default_rng(seed)
    with open(os.path.join(folder, "metadata.csv"), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "label", "fold"])
        for i in range(count):
            label, rate = int(rng.integers(len(CLASSES))), int(rng.choice(RATES))
            t = np.arange(int(rate * seconds)) / rate
            base = (700, 180, 400, 90)[label] * rng.uniform(0.8, 1.2)
            wobble = (60, 0, 15, 3)[label] * np.sin(2 * np.pi * (3, 1, 6, 10)[label] * t)
            signal = 0.4 * np.sin(2 * np.pi * base * t + wobble) + 0.2 * np.sin(6 * np.pi * base * t)
            signal += 0.1 * rng.standard_normal(len(t))
            with wave.open(os.path.join(folder, f"{i}.wav"), "wb") as clip:
                clip.setparams((1, 2, rate, len(t), "NONE", "not compressed"))
                clip.writeframes((signal * 20000).astype(np.int16).tobytes())
            writer.writerow([f"{i}.wav", label, i % 10])


class Resample(nn.Module):
    """Windowed sinc interpolation between two rates."""

    def __init__(self, source, target, zeros=6, rolloff=0.99):
        super().__init__()
        divisor = math.gcd(source, target)
        self.source, self.target = source // divisor, target // divisor
        base = min(self.source, self.target) * rolloff
        self.width = math.ceil(zeros * self.source / base)
        index = torch.arange(-self.width, self.width + self.source, dtype=torch.float64) / self.source
        t = torch.arange(0, -self.target, -1, dtype=torch.float64)[:, None, None] / self.target + index
        t = (t * base).clamp(-zeros, zeros)
        window = torch.cos(t * math.pi / zeros / 2) ** 2
        kernel = torch.sinc(t) * window * (base / self.source)
        self.register_buffer("kernel", kernel.float())

    def forward(self, signal):
        length = math.ceil(self.target * signal.size(-1) / self.source)
        padded = nn.functional.pad(signal, (self.width, self.width + self.source))
        out = nn.functional.conv1d(padded[None, None], self.kernel, stride=self.source)
        return out.transpose(1, 2).reshape(-1)[:length]


class LogMel(nn.Module):
    def __init__(self, rate, n_fft=512, hop=256, mels=48):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        top = 2595 * math.log10(1 + rate / 2 / 700)
        edges = 700 * (10 ** (torch.linspace(0, top, mels + 2) / 2595) - 1)
        bins = torch.linspace(0, rate / 2, n_fft // 2 + 1)
        up = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        down = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
        self.register_buffer("bank", torch.minimum(up, down).clamp(min=0))
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, signal):
        spectrum = torch.stft(signal, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log(self.bank @ spectrum.abs().square() + 1e-5)


class UrbanSounds(Dataset):
    def __init__(self, folder, folds, rate, seconds):
        self.folder, self.rate, self.samples = folder, rate, int(rate * seconds)
        with open(os.path.join(folder, "metadata.csv"), newline="") as file:
            self.rows = [row for row in csv.DictReader(file) if int(row["fold"]) in folds]
        self.features = LogMel(rate)

    def __len__(self):
        return len(self.rows)

    def load(self, name):
        with wave.open(os.path.join(self.folder, name)) as clip:
            samples = np.frombuffer(clip.readframes(clip.getnframes()), np.int16)
            return torch.from_numpy(samples.astype(np.float32) / 32768), clip.getframerate()

    def resample_if_necessary(self, signal, rate):
        if rate != self.rate:
            signal = Resample(rate, self.rate)(signal)
        return signal

    def fit_length(self, signal):
        return nn.functional.pad(signal, (0, max(0, self.samples - len(signal))))[: self.samples]

    def __getitem__(self, index):
        row = self.rows[index]
        signal = self.resample_if_necessary(*self.load(row["name"]))
        return self.features(self.fit_length(signal)).unsqueeze(0), int(row["label"])


def build_network(classes):
    layers, inside = [nn.BatchNorm2d(1)], 1
    for outside in (24, 48, 64):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


@torch.no_grad()
def accuracy(network, loader):
    network.eval()
    right = sum((network(x).argmax(1) == y).sum() for x, y in loader)
    network.train()
    return int(right) / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rate", type=int, default=16000)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        record(folder, 900, args.seconds, seed=0)
        train_set = UrbanSounds(folder, range(9), args.rate, args.seconds)
        test_set = UrbanSounds(folder, [9], args.rate, args.seconds)
        options = dict(batch_size=args.batch_size, num_workers=2, persistent_workers=True)
        train_loader = DataLoader(train_set, shuffle=True, drop_last=True, **options)
        test_loader = DataLoader(test_set, **options)
        network = build_network(len(CLASSES))
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        criterion = nn.CrossEntropyLoss()
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for x, y in train_loader:
                loss = criterion(network(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
            print(f"epoch {epoch} loss {total / len(train_loader):.4f} accuracy {accuracy(network, test_loader):.3f}")


if __name__ == "__main__":
    main()

"""Tagging of jungle recordings: crops at a random speed, a log spectrogram on the fly, a small convolutional tagger."""

import functools
import math
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, SPECIES = 8000, 2, 10
SPEEDS = (0.915, 0.945, 1.055, 1.085)


@functools.lru_cache
def sinc_kernel(orig, new, width=24, rolloff=0.99):
    """Windowed sinc filters of a polyphase resampler, one for each of the output phases."""
    gcd = math.gcd(orig, new)
    orig, new = orig // gcd, new // gcd
    base = min(orig, new) * rolloff
    reach = math.ceil(width * orig / base)
    index = torch.arange(-reach, reach + orig, dtype=torch.float64)[None, None] / orig
    t = torch.arange(0, -new, -1, dtype=torch.float64)[:, None, None] / new + index
    t = (t * base).clamp_(-width, width)
    window = torch.cos(t * math.pi / width / 2) ** 2
    kernel = torch.where(t == 0, torch.ones_like(t), torch.sin(t * math.pi) / (t * math.pi))
    return (kernel * window * base / orig).float(), reach, orig, new


class SpeedPerturb:
    def __init__(self, rate, speeds):
        self.rate, self.speeds = rate, speeds

    def kernel(self, speed):
        return sinc_kernel(round(self.rate * speed), self.rate)

    def __call__(self, wave):
        kernel, reach, orig, new = self.kernel(random.choice(self.speeds))
        length = math.ceil(new * wave.shape[-1] / orig)
        padded = nn.functional.pad(wave[None, None], (reach, reach + orig))
        return nn.functional.conv1d(padded, kernel, stride=orig)[0].t().flatten()[:length]


class JungleClips(Dataset):
    def __init__(self, clips, seed, train):
        rng = np.random.default_rng(seed)
        self.labels = (rng.random((clips, SPECIES)) < 0.2).astype(np.float32)
        t = np.arange(RATE * SECONDS * 5 // 4, dtype=np.float32) / RATE
        pitch = 300 * 1.35 ** np.arange(SPECIES)
        calls = np.sin(2 * np.pi * pitch[:, None] * t + 3 * np.sin(2 * np.pi * 4 * t)).astype(np.float32)
        self.waves = self.labels @ calls + 0.6 * rng.standard_normal((clips, len(t)), dtype=np.float32)
        self.perturb = SpeedPerturb(RATE, SPEEDS) if train else None
        self.window = torch.hann_window(256)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        wave = torch.from_numpy(self.waves[i])
        if self.perturb is not None:
            wave = self.perturb(wave)
        start = random.randrange(len(wave) - RATE * SECONDS) if self.perturb else 0
        wave = wave[start : start + RATE * SECONDS]
        spectrum = torch.stft(wave, 256, 128, window=self.window, return_complex=True).abs()
        return torch.log(spectrum + 1e-3)[None], torch.from_numpy(self.labels[i])


class Tagger(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        sizes = (1, width, 2 * width, 3 * width)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.AvgPool2d(2))
                for a, b in zip(sizes[:-1], sizes[1:])
            )
        )
        self.head = nn.Linear(sizes[-1] * 16, SPECIES)

    def forward(self, x):
        x = self.blocks(x).mean(3)
        return self.head(x[:, :, :16].flatten(1))


def fit(model, train, valid, epochs=2):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * len(train))
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(epochs):
        model.train()
        for step, (spectrum, label) in enumerate(train):
            loss = criterion(model(spectrum), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if step % 25 == 0:
                print(f"{epoch}:{step} loss {loss.item():.4f}")
        model.eval()
        with torch.inference_mode():
            right = [((model(spectrum) > 0) == (label > 0.5)).float().mean().item() for spectrum, label in valid]
        print(f"epoch {epoch} accuracy {sum(right) / len(right):.4f}")


def main():
    random.seed(0)
    torch.manual_seed(0)
    train = DataLoader(JungleClips(600, 0, train=True), batch_size=10, shuffle=True)
    valid = DataLoader(JungleClips(60, 1, train=False), batch_size=30)
    fit(Tagger(), train, valid)


if __name__ == "__main__":
    main()

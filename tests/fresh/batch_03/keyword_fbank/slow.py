"""Keyword spotting: log mel features of one-second clips, a small depthwise convolutional network."""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLE_RATE = 16000
KEYWORDS = 12


def hz_to_mel(hz):
    return 2595.0 * np.log10(1.0 + hz / 700.0)


def mel_to_hz(mel):
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def get_mel_banks(n_mels, n_fft, sample_rate):
    """Triangular filters: (n_mels, n_fft // 2 + 1)."""
    points = mel_to_hz(np.linspace(hz_to_mel(20.0), hz_to_mel(sample_rate / 2), n_mels + 2))
    freqs = np.linspace(0, sample_rate / 2, n_fft // 2 + 1)
    banks = np.zeros((n_mels, n_fft // 2 + 1), dtype=np.float32)
    for i in range(n_mels):
        left, centre, right = points[i : i + 3]
        rising = (freqs - left) / (centre - left)
        falling = (right - freqs) / (right - centre)
        banks[i] = np.maximum(0.0, np.minimum(rising, falling))
    return torch.from_numpy(banks)


class Fbank:
    """Waveform to log mel spectrogram."""

    def __init__(self, n_mels=40, n_fft=512, hop=320):
        self.n_mels, self.n_fft, self.hop = n_mels, n_fft, hop

    def __call__(self, waveform):
        banks = get_mel_banks(self.n_mels, self.n_fft, SAMPLE_RATE)
        window = torch.hann_window(self.n_fft)
        spectrum = torch.stft(waveform, self.n_fft, self.hop, window=window, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        return torch.log(banks @ power + 1e-6)


class SpeechCommands(Dataset):
    def __init__(self, clips, seed, transform):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, KEYWORDS, clips)
        time = np.arange(SAMPLE_RATE, dtype=np.float32) / SAMPLE_RATE
        self.waveforms = np.empty((clips, SAMPLE_RATE), dtype=np.float32)
        for i, label in enumerate(self.labels):
            tone = np.sin(2 * np.pi * (200 + 150 * label) * time * (1 + 0.1 * rng.random()))
            self.waveforms[i] = tone * np.exp(-3 * np.abs(time - rng.uniform(0.3, 0.7)))
        self.waveforms += 0.3 * rng.standard_normal(self.waveforms.shape, dtype=np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(torch.from_numpy(self.waveforms[index])), int(self.labels[index])


class DSCNN(nn.Module):
    def __init__(self, width=32, blocks=3):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(1, width, (10, 4), stride=2, padding=(5, 1), bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        layers = []
        for _ in range(blocks):
            layers += [
                nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(width, KEYWORDS)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x[:, None])).mean(dim=(2, 3)))


def train(epochs=4, batch_size=32):
    torch.manual_seed(0)
    dataset = SpeechCommands(640, seed=5, transform=Fbank())
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True)
    model = DSCNN()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        total = 0.0
        for features, labels in loader:
            loss = criterion(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1}/{epochs} loss {total / len(loader):.4f}")


train()

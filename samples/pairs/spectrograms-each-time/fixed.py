"""Keyword spotting: a convolutional network on log-mel spectrograms of one second of sound."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(7)
RATE, WORDS, BANDS = 8000, 12, 40


def mel_filters(bins, bands):
    """Triangles of equal width on the mel scale, (bands, bins)."""
    mel = torch.linspace(0, 2595 * math.log10(1 + RATE / 2 / 700), bands + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    hertz = torch.linspace(0, RATE / 2, bins)
    rising = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


class Commands(Dataset):
    def __init__(self, count):
        seconds = torch.arange(RATE) / RATE
        self.labels = torch.randint(0, WORDS, (count,))
        pitch = 200.0 + 90 * self.labels[:, None]
        sounds = torch.sin(2 * math.pi * pitch * seconds * (1 + seconds)) + 0.3 * torch.randn(count, RATE)
        self.window = torch.hann_window(400)
        self.filters = mel_filters(257, BANDS)
        self.spectrograms = [self.log_mel(sound) for sound in sounds]

    def log_mel(self, sound):
        power = torch.stft(sound, 512, 80, 400, self.window, return_complex=True).abs() ** 2
        return (self.filters @ power).clamp(min=1e-6).log()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.spectrograms[index], self.labels[index]


model = nn.Sequential(
    nn.BatchNorm1d(BANDS),
    nn.Conv1d(BANDS, 96, 9, stride=2),
    nn.ReLU(),
    nn.Conv1d(96, 96, 9, stride=2),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(96, WORDS),
)
loader = DataLoader(Commands(640), batch_size=32, shuffle=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for epoch in range(8):
    correct = 0
    for spectrogram, label in loader:
        logits = model(spectrogram)
        loss = nn.functional.cross_entropy(logits, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == label).sum().item()
    print(f"epoch {epoch + 1}: accuracy {correct / len(loader.dataset):.3f}")

"""Tell owl species apart by their calls: a convolutional recurrent network on log-mel frames."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES = ["tawny", "barn", "eagle", "little", "scops", "long-eared", "short-eared", "pygmy"]


@dataclass
class Settings:
    clips: int = 1280
    sample_rate: int = 8000
    seconds: float = 1.6
    n_fft: int = 256
    hop: int = 100
    mels: int = 64
    batch_size: int = 32
    epochs: int = 3
    lr: float = 2e-3
    seed: int = 28


def mel_matrix(settings):
    """Triangular filters, evenly spaced on the mel scale."""
    top = 2595 * np.log10(1 + settings.sample_rate / 2 / 700)
    points = 700 * (10 ** (np.linspace(0, top, settings.mels + 2) / 2595) - 1)
    bins = np.linspace(0, settings.sample_rate / 2, settings.n_fft // 2 + 1)
    rising = (bins - points[:-2, None]) / (points[1:-1] - points[:-2])[:, None]
    falling = (points[2:, None] - bins) / (points[2:] - points[1:-1])[:, None]
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


def hoot(species, settings, rng):
    """Two falling notes whose pitch and length tell the species."""
    time = np.arange(int(settings.sample_rate * settings.seconds)) / settings.sample_rate
    pitch = 300 + 120 * species + rng.normal(scale=15)
    sweep = pitch - (20 + 10 * species) * time
    gate = np.exp(-(((time - 0.4) / 0.15) ** 2)) + 0.8 * np.exp(-(((time - 1.1) / 0.25) ** 2))
    return gate * np.sin(2 * np.pi * np.cumsum(sweep) / settings.sample_rate) + rng.normal(scale=0.2, size=time.size)


def log_mel(wave, filters, settings):
    frames = np.lib.stride_tricks.sliding_window_view(wave, settings.n_fft)[:: settings.hop]
    power = np.abs(np.fft.rfft(frames * np.hanning(settings.n_fft), axis=1)) ** 2
    return np.log(power @ filters.T + 1e-5).astype(np.float32)


class OwlCalls(Dataset):
    """Features of all clips are made once and are kept in memory."""

    def __init__(self, settings):
        rng = np.random.default_rng(settings.seed)
        filters = mel_matrix(settings)
        self.labels = rng.integers(0, len(SPECIES), settings.clips)
        self.features = [log_mel(hoot(label, settings, rng), filters, settings) for label in self.labels]
        mean, std = np.mean(self.features[:200]), np.std(self.features[:200])
        self.features = [(feature - mean) / std for feature in self.features]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"mel": self.features[index], "label": int(self.labels[index])}


def collate(examples):
    mels = torch.tensor([example["mel"] for example in examples])
    labels = torch.tensor([example["label"] for example in examples])
    return mels.unsqueeze(1), labels


class ConvBlock(nn.Sequential):
    def __init__(self, inputs, outputs, pool):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(pool),
        )


class OwlNet(nn.Module):
    def __init__(self, mels, hidden=96):
        super().__init__()
        self.convs = nn.Sequential(ConvBlock(1, 12, 2), ConvBlock(12, 24, 2), ConvBlock(24, 48, (1, 4)))
        self.gru = nn.GRU(48 * (mels // 16), hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, len(SPECIES))

    def forward(self, mels):
        maps = self.convs(mels)
        frames = maps.permute(0, 2, 1, 3).flatten(2)
        states, _ = self.gru(frames)
        return self.head(states.mean(dim=1))


def main(settings):
    torch.manual_seed(settings.seed)
    loader = DataLoader(
        OwlCalls(settings), batch_size=settings.batch_size, shuffle=True, drop_last=True, collate_fn=collate
    )
    model = OwlNet(settings.mels)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, fused=True)
    for epoch in range(settings.epochs):
        correct = torch.zeros((), dtype=torch.long)
        for mels, labels in loader:
            logits = model(mels)
            loss = F.cross_entropy(logits, labels, label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == labels).sum()
        share = correct.item() / (len(loader) * settings.batch_size)
        print(f"epoch {epoch}  last loss {loss.item():.3f}  accuracy {share:.3f}")


if __name__ == "__main__":
    main(Settings())

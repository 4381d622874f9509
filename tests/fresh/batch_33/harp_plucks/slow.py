"""Frame by frame, which string of a harp sounds: convolutions over a spectrogram and a GRU."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    strings: int = 22
    clips: int = 320
    seconds: float = 1.2
    rate: int = 8000
    window: int = 512
    hop: int = 160
    batch_size: int = 16
    epochs: int = 6
    hidden: int = 112
    lr: float = 2e-3
    seed: int = 41


class HarpSynth:
    """Clips of plucked strings, each string an exponentially fading row of harmonics."""

    def __init__(self, config: Config):
        self.config = config
        self.rng = np.random.default_rng(config.seed)
        self.pitches = 110.0 * 2 ** (np.arange(config.strings - 1) / 7)

    def clip(self) -> tuple[np.ndarray, np.ndarray]:
        c = self.config
        length = int(c.seconds * c.rate)
        wave = 0.01 * self.rng.normal(size=length)
        frames = length // c.hop + 1
        labels = np.zeros(frames, dtype=np.int64)
        start = int(self.rng.integers(0, c.rate // 5))
        while start < length:
            string = int(self.rng.integers(1, c.strings))
            span = min(int(self.rng.integers(c.rate // 6, c.rate // 2)), length - start)
            time = np.arange(span) / c.rate
            for harmonic in (1, 2, 3):
                tone = np.sin(2 * np.pi * self.pitches[string - 1] * harmonic * time)
                wave[start : start + span] += tone * np.exp(-5 * harmonic * time) / harmonic
            labels[start // c.hop : (start + span) // c.hop] = string
            start += span
        return wave.astype(np.float32), labels

    def corpus(self) -> tuple[torch.Tensor, torch.Tensor]:
        waves, labels = zip(*(self.clip() for _ in range(self.config.clips)), strict=True)
        return torch.from_numpy(np.stack(waves)), torch.from_numpy(np.stack(labels))


def log_spectrogram(waves: torch.Tensor, config: Config) -> torch.Tensor:
    window = torch.hann_window(config.window)
    spectrum = torch.stft(waves, config.window, config.hop, window=window, center=True, return_complex=True)
    return torch.log1p(10 * spectrum.abs())


class FrameTagger(nn.Module):
    def __init__(self, bins: int, hidden: int, strings: int):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(bins, 2 * hidden, 5, padding=2),
            nn.BatchNorm1d(2 * hidden),
            nn.ReLU(),
            nn.Conv1d(2 * hidden, 2 * hidden, 5, padding=2),
            nn.BatchNorm1d(2 * hidden),
            nn.ReLU(),
        )
        self.memory = nn.GRU(2 * hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, strings)

    def forward(self, spectrum: torch.Tensor) -> torch.Tensor:
        states, _ = self.memory(self.front(spectrum).transpose(1, 2))
        return self.out(states)


class ConfusionMeter:
    def __init__(self, classes: int):
        self.classes = classes
        self.matrix = torch.zeros(classes, classes, dtype=torch.long)

    def update(self, logits: torch.Tensor, target: torch.Tensor) -> None:
        predicted = logits.detach().argmax(-1)
        for t, p in zip(target.view(-1), predicted.view(-1)):
            self.matrix[t, p] += 1

    def recall(self) -> float:
        hits = self.matrix.diagonal().float()
        seen = self.matrix.sum(1).clamp(min=1).float()
        return (hits / seen).mean().item()


class Runner:
    def __init__(self, config: Config):
        self.config = config
        waves, self.labels = HarpSynth(config).corpus()
        self.spectra = log_spectrogram(waves, config)
        self.model = FrameTagger(self.spectra.size(1), config.hidden, config.strings)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=config.lr)
        self.criterion = nn.CrossEntropyLoss()

    def run_epoch(self) -> tuple[float, float]:
        meter = ConfusionMeter(self.config.strings)
        losses = []
        for index in torch.randperm(self.config.clips).split(self.config.batch_size):
            target = self.labels[index]
            logits = self.model(self.spectra[index])
            loss = self.criterion(logits.flatten(0, 1), target.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            meter.update(logits, target)
            losses.append(loss.detach())
        return torch.stack(losses).mean().item(), meter.recall()

    def run(self) -> None:
        for epoch in range(self.config.epochs):
            loss, recall = self.run_epoch()
            print(f"{epoch}: loss {loss:.3f}, mean recall {recall:.3f}")


if __name__ == "__main__":
    config = Config()
    torch.manual_seed(config.seed)
    Runner(config).run()

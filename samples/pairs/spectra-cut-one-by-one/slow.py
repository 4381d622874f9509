"""Spoken commands: bands and stretches of the spectrogram are cut out of the training set as in SpecAugment."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Config:
    words: int = 20
    mels: int = 64
    frames: int = 80
    cuts: int = 3
    widest: int = 12
    batch: int = 48
    width: int = 64
    epochs: int = 6
    lr: float = 2e-3


class SpecAugment:
    def __init__(self, cuts, widest):
        self.cuts, self.widest = cuts, widest

    def __call__(self, spectra):
        """Zeroes some bands and some stretches of time, elsewhere in each spectrogram: (batch, mels, frames)."""
        for dim in (1, 2):
            width = torch.randint(1, self.widest, (len(spectra), self.cuts))
            start = (torch.rand(len(spectra), self.cuts) * (spectra.shape[dim] - width)).long()
            spectra = self.cut(spectra, dim, start, width)
        return spectra

    def cut(self, spectra, dim, start, width):
        spectra = spectra.clone()
        for i in range(spectra.shape[0]):
            for j in range(self.cuts):
                spectra[i].narrow(dim - 1, int(start[i, j]), int(width[i, j])).zero_()
        return spectra


class Commands(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = nn.BatchNorm1d(cfg.mels)
        self.first = nn.Conv1d(cfg.mels, cfg.width, 5, stride=2, padding=2)
        self.second = nn.Conv1d(cfg.width, cfg.width, 5, stride=2, padding=2)
        self.out = nn.Linear(cfg.width, cfg.words)

    def forward(self, spectra):
        x = F.relu(self.first(self.norm(spectra)))
        return self.out(F.relu(self.second(x)).amax(2))


def recordings(cfg, count):
    """A word is a path of its own through the bands, said a little earlier or later."""
    word = torch.randint(0, cfg.words, (count,))
    path = torch.randint(0, cfg.mels, (cfg.words, 10)).repeat_interleave(cfg.frames // 10, 1)[word]
    shift = torch.randint(0, 8, (count, 1))
    path = path.gather(1, (torch.arange(cfg.frames) + shift) % cfg.frames)
    voice = F.one_hot(path, cfg.mels).transpose(1, 2).float().contiguous()
    return 2 * voice + torch.randn(count, cfg.mels, cfg.frames), word


def train(cfg):
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    spectra, words = recordings(cfg, 2400)
    augment, model = SpecAugment(cfg.cuts, cfg.widest), Commands(cfg).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    for epoch in range(cfg.epochs):
        model.train()
        for chosen in torch.randperm(len(spectra)).split(cfg.batch):
            inputs = augment(spectra[chosen]).to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                scores = model(inputs)
            loss = F.cross_entropy(scores.float(), words[chosen].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}/{cfg.epochs}: loss {loss.item():.4f}")


if __name__ == "__main__":
    train(Config())

"""Transcribes yodels into syllables: log-mel features, masks over them, convolutions, a GRU and CTC."""

from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SYLLABLES = ["-", "ho", "lo", "dri", "ri", "jo", "di", "lai", "u", "la", "ra", "je"]


@dataclass
class AugmentConfig:
    freq_masks: int = 2
    time_masks: int = 10
    freq_width: int = 12
    time_width: float = 0.05


@dataclass
class Config:
    mels: int = 64
    frames: int = 160
    batch_size: int = 64
    hidden: int = 48
    steps: int = 240
    lr: float = 1e-3
    augment: AugmentConfig = field(default_factory=AugmentConfig)


class Yodels(Dataset):
    """Each syllable is a formant of its own pitch that lasts for some frames."""

    def __init__(self, n, cfg, seed=0):
        g = torch.Generator().manual_seed(seed)
        shapes = torch.randn(len(SYLLABLES), cfg.mels, generator=g)
        self.texts = torch.randint(1, len(SYLLABLES), (n, 10), generator=g)
        self.lengths = torch.randint(cfg.frames * 3 // 4, cfg.frames + 1, (n,), generator=g)
        sung = shapes[self.texts].repeat_interleave(cfg.frames // 10, dim=1)
        self.features = (sung + 0.5 * torch.randn(n, cfg.frames, cfg.mels, generator=g)).transpose(1, 2).contiguous()

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return self.features[i], self.lengths[i], self.texts[i]


class SpecAugment(nn.Module):
    """Blanks random bands of frequency and random stretches of time, anew for each recording."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    @torch.no_grad()
    def forward(self, x, lengths):
        cfg = self.cfg
        count, mels, frames = x.shape
        start = torch.randint(0, mels - cfg.freq_width + 1, (count, cfg.freq_masks, 1))
        width = torch.randint(0, cfg.freq_width + 1, (count, cfg.freq_masks, 1))
        mel = torch.arange(mels)
        bands = ((mel >= start) & (mel < start + width)).any(1)
        longest = (lengths * cfg.time_width).long().clamp(min=1).view(-1, 1, 1)
        start = (torch.rand(count, cfg.time_masks, 1) * (lengths.view(-1, 1, 1) - longest + 1)).long()
        width = (torch.rand(count, cfg.time_masks, 1) * (longest + 1)).long()
        frame = torch.arange(frames)
        spans = ((frame >= start) & (frame < start + width)).any(1)
        return x.masked_fill(bands[:, :, None] | spans[:, None, :], 0.0)


class Transcriber(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.augment = SpecAugment(cfg.augment)
        self.conv = nn.Sequential(
            nn.Conv1d(cfg.mels, cfg.hidden, 5, stride=2, padding=2), nn.GELU(),
            nn.Conv1d(cfg.hidden, cfg.hidden, 5, stride=2, padding=2), nn.GELU(),
        )  # fmt: skip
        self.rnn = nn.GRU(cfg.hidden, cfg.hidden, batch_first=True)
        self.head = nn.Linear(cfg.hidden, len(SYLLABLES))

    def forward(self, features, lengths):
        if self.training:
            features = self.augment(features, lengths)
        encoded = self.conv(features).transpose(1, 2)
        return self.head(self.rnn(encoded)[0]).log_softmax(-1), torch.div(lengths + 3, 4, rounding_mode="floor")


def endless(loader):
    while True:
        yield from loader


def main():
    cfg = Config()
    torch.manual_seed(0)
    loader = DataLoader(Yodels(1024, cfg), cfg.batch_size, shuffle=True, drop_last=True)
    model = Transcriber(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.steps)
    for step, (features, lengths, texts) in zip(range(cfg.steps), endless(loader)):
        log_probs, frames = model(features, lengths)
        sizes = torch.full((len(texts),), texts.shape[1])
        loss = F.ctc_loss(log_probs.transpose(0, 1), texts, frames, sizes, zero_infinity=True)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if (step + 1) % 60 == 0:
            print(f"step {step + 1} ctc {loss.item():.3f}")


if __name__ == "__main__":
    main()

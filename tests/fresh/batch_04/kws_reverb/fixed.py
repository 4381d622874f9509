"""Spoken commands in echoing rooms: a network on raw waveforms, and augmentation with room impulse responses."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000


@dataclass
class Config:
    clips: int = 320
    commands: int = 10
    rooms: int = 24
    batch_size: int = 16
    epochs: int = 6
    lr: float = 2e-3


class AddReverb:
    """Convolves a clip with the impulse response of a random room."""

    def __init__(self, rooms, rng, seconds=0.3):
        self.rng = rng
        time = np.arange(int(seconds * RATE)) / RATE
        decay = rng.uniform(8, 30, rooms)[:, None]
        self.responses = (rng.standard_normal((rooms, len(time))) * np.exp(-decay * time)).astype(np.float32)
        self.responses[:, 0] = 1.0

    def __call__(self, clip):
        response = self.responses[self.rng.integers(len(self.responses))]
        size = len(clip) + len(response)
        spectrum = np.fft.rfft(clip, size) * np.fft.rfft(response, size)
        wet = np.fft.irfft(spectrum, size)[: len(clip)]
        return wet / (np.abs(wet).max() + 1e-6)


class AddNoise:
    def __init__(self, rng, level=0.02):
        self.rng, self.level = rng, level

    def __call__(self, clip):
        return clip + self.level * self.rng.standard_normal(len(clip), dtype=np.float32)


class Commands(Dataset):
    """Two tones that glide; where they begin and end tells the command."""

    def __init__(self, config, transforms, rng):
        self.labels = rng.integers(0, config.commands, config.clips)
        self.transforms = transforms
        time = np.arange(RATE) / RATE
        begin = 200 + 120 * self.labels + rng.uniform(-20, 20, config.clips)
        glide = 150 * (self.labels % 3 - 1)
        phase = 2 * np.pi * (begin[:, None] * time + glide[:, None] * time**2)
        envelope = np.exp(-8 * (time - rng.uniform(0.3, 0.7, (config.clips, 1))) ** 2)
        self.clips = ((np.sin(phase) + 0.5 * np.sin(2 * phase)) * envelope).astype(np.float32)

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        clip = self.clips[index]
        for transform in self.transforms:
            clip = transform(clip)
        return torch.from_numpy(clip.astype(np.float32)).unsqueeze(0), int(self.labels[index])


class M5(nn.Module):
    def __init__(self, commands, width=32):
        super().__init__()

        def stage(inp, out, kernel, stride=1):
            return [nn.Conv1d(inp, out, kernel, stride), nn.BatchNorm1d(out), nn.ReLU(), nn.MaxPool1d(4)]

        self.features = nn.Sequential(
            *stage(1, width, 80, 4),
            *stage(width, width, 3),
            *stage(width, 2 * width, 3),
            *stage(2 * width, 2 * width, 3),
        )
        self.classifier = nn.Linear(2 * width, commands)

    def forward(self, x):
        return self.classifier(self.features(x).mean(dim=-1))


def run_epoch(model, loader, optimizer, loss_fn):
    losses, right = [], 0
    for clips, labels in loader:
        logits = model(clips)
        loss = loss_fn(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        right = right + (logits.detach().argmax(dim=1) == labels).sum()
    return torch.stack(losses).mean().item(), right.item() / len(loader.dataset)


def main():
    config, rng = Config(), np.random.default_rng(500)
    torch.manual_seed(501)
    data = Commands(config, [AddReverb(config.rooms, rng), AddNoise(rng)], rng)
    loader = DataLoader(data, config.batch_size, shuffle=True)
    model = M5(config.commands)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=1e-4, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.3)
    for epoch in range(config.epochs):
        loss, accuracy = run_epoch(model, loader, optimizer, nn.CrossEntropyLoss(label_smoothing=0.05))
        scheduler.step()
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()

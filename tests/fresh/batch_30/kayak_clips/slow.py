"""Recognise paddle strokes in short clips: a convolutional encoder for each frame and a GRU over the frames."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

STROKES = ("forward", "reverse", "sweep", "draw", "brace", "roll")


@dataclass(frozen=True)
class Settings:
    clips: int = 960
    frames: int = 12
    size: int = 40
    batch_size: int = 12
    channels: int = 12
    features: int = 64
    hidden: int = 96
    epochs: int = 4
    lr: float = 1e-3
    seed: int = 17


class StrokeClips(Dataset):
    """A bright paddle blade that follows the path of its stroke over dark water."""

    def __init__(self, settings: Settings) -> None:
        generator = torch.Generator().manual_seed(settings.seed)
        self.labels = torch.randint(len(STROKES), (settings.clips,), generator=generator)
        phase = 2 * math.pi * torch.rand(settings.clips, 1, generator=generator)
        time = torch.linspace(0, 2 * math.pi, settings.frames)
        speed = 1 + self.labels.unsqueeze(1) / 2
        x = 0.6 * torch.cos(speed * time + phase)
        y = 0.6 * torch.sin((1 + self.labels.unsqueeze(1) % 3) * time + phase)
        axis = torch.linspace(-1, 1, settings.size)
        blade_x = torch.exp(-((axis - x.unsqueeze(-1)) ** 2) / 0.02)
        blade_y = torch.exp(-((axis - y.unsqueeze(-1)) ** 2) / 0.02)
        blades = blade_y.unsqueeze(-1) * blade_x.unsqueeze(-2)
        noise = torch.randn(blades.shape, generator=generator)
        self.clips = (blades + 0.3 * noise).unsqueeze(2)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.clips[index], self.labels[index]


class FrameEncoder(nn.Module):
    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            self.stage(1, channels),
            self.stage(channels, 2 * channels),
            self.stage(2 * channels, 4 * channels),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4 * channels, features),
        )

    @staticmethod
    def stage(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.GroupNorm(4, outputs), nn.ReLU(inplace=True)
        )

    def forward(self, frames: Tensor) -> Tensor:
        return self.layers(frames)


class StrokeNet(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.encoder = FrameEncoder(settings.channels, settings.features)
        self.gru = nn.GRU(settings.features, settings.hidden, batch_first=True)
        self.classify = nn.Linear(settings.hidden, len(STROKES))

    def forward(self, clips: Tensor) -> Tensor:
        features = torch.stack([self.encoder(clips[:, frame]) for frame in range(clips.shape[1])], dim=1)
        _, last = self.gru(features)
        return self.classify(last[-1])


class Runner:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.model = StrokeNet(settings)
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=settings.lr, fused=True)
        self.loader = DataLoader(StrokeClips(settings), batch_size=settings.batch_size, shuffle=True)

    def train_epoch(self) -> float:
        total = torch.zeros(())
        for clips, labels in self.loader:
            loss = self.criterion(self.model(clips), labels)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        return total.item() / len(self.loader)

    def run(self) -> None:
        for epoch in range(self.settings.epochs):
            print(f"epoch {epoch}: {self.train_epoch():.4f}")


if __name__ == "__main__":
    settings = Settings()
    torch.manual_seed(settings.seed)
    Runner(settings).run()

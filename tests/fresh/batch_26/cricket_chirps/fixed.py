"""Which species of cricket chirps: log-mel windows of field recordings, a small convolutional network with a GRU."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    species: int = 14
    clips: int = 480
    mels: int = 48
    frames: int = 128
    batch_size: int = 32
    epochs: int = 8
    lr: float = 2e-3
    channels: list[int] = field(default_factory=lambda: [16, 32, 48])
    seed: int = 5


def chirp(rng, species, mels, frames):
    """A pulse train in the band of the species, above the noise of the field."""
    spectrogram = rng.normal(-4.0, 0.7, size=(mels, frames))
    band = 3 + 3 * species % (mels - 8)
    period = 6 + species % 5
    start = rng.integers(0, period)
    spectrogram[band : band + 4, start::period] += 3.0
    return spectrogram.astype(np.float32)


class Chirps(Dataset):
    def __init__(self, config, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, config.species, config.clips)
        self.windows = [chirp(rng, label, config.mels, config.frames) for label in self.labels]
        mean = np.mean([window.mean() for window in self.windows])
        self.windows = [window - mean for window in self.windows]

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        return self.windows[index], int(self.labels[index])


def collate(samples):
    windows, labels = zip(*samples)
    batch = torch.from_numpy(np.stack(windows))
    return batch.unsqueeze(1), torch.tensor(labels)


class ConvBlock(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.MaxPool2d((2, 2)),
        )


class ChirpNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        widths = [1, *config.channels]
        self.blocks = nn.Sequential(*(ConvBlock(a, b) for a, b in zip(widths, widths[1:])))
        rows = config.mels // 2 ** len(config.channels)
        self.gru = nn.GRU(widths[-1] * rows, 64, batch_first=True, bidirectional=True)
        self.classify = nn.Linear(128, config.species)

    def forward(self, windows):
        maps = self.blocks(windows)
        steps = maps.permute(0, 3, 1, 2).flatten(2)
        outputs, _ = self.gru(steps)
        return self.classify(outputs.mean(dim=1))


def accuracy(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for windows, labels in loader:
            right += (model(windows).argmax(dim=1) == labels).sum()
    model.train()
    return right.item() / len(loader.dataset)


def train(config):
    torch.manual_seed(config.seed)
    training = Chirps(config, config.seed)
    loader = DataLoader(training, config.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    model = ChirpNet(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.lr, epochs=config.epochs, steps_per_epoch=len(loader)
    )
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(config.epochs):
        losses = []
        for windows, labels in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(windows), labels)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
        print(f"epoch {epoch + 1}: loss {torch.stack(losses).mean():.3f}")
    print(f"accuracy on training clips {accuracy(model, loader):.3f}")


if __name__ == "__main__":
    train(Config())

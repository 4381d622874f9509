"""Spoken commands on top of a pretrained wave encoder that stays as it is; only the classifier is trained."""

import os
import tempfile
import wave

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, CLASSES = 8000, 8


def say_commands(folder, count, seed):
    """One second each: a chord that glides, differently for each command."""
    rng = np.random.default_rng(seed)
    time = np.arange(RATE) / RATE
    for i in range(count):
        command = i % CLASSES
        pitch = rng.uniform(150, 250) * (1 + 0.3 * time * (command - 4) / 4)
        sound = sum(np.sin(2 * np.pi * np.cumsum(pitch * k) / RATE) / k for k in (1, 2, 3 + command % 3))
        sound = (sound + 0.3 * rng.normal(size=RATE)) * 6000
        with wave.open(os.path.join(folder, f"{i:04d}_{command}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(sound.astype("<i2").tobytes())


class Commands(Dataset):
    def __init__(self, folder):
        self.items = []
        for name in sorted(os.listdir(folder)):
            with wave.open(os.path.join(folder, name), "rb") as file:
                samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
            samples = torch.from_numpy(samples.astype(np.float32))
            self.items.append((samples / samples.std(), int(name[-5])))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class WaveEncoder(nn.Module):
    """Strided convolutions, then a small transformer: 50 frames a second."""

    def __init__(self, dim=128, layers=2):
        super().__init__()
        convs, channels = [], 1
        for kernel, stride in ((10, 5), (8, 4), (4, 2), (4, 2), (4, 2)):
            convs += [nn.Conv1d(channels, dim, kernel, stride, padding=kernel // 2), nn.GroupNorm(1, dim), nn.GELU()]
            channels = dim
        self.feature_extractor = nn.Sequential(*convs)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, activation="gelu", batch_first=True)
        self.context = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, waves):
        return self.context(self.feature_extractor(waves[:, None]).transpose(1, 2))


class CommandClassifier(nn.Module):
    def __init__(self, checkpoint, dim=128, hidden=256):
        super().__init__()
        self.encoder = WaveEncoder(dim)
        self.encoder.load_state_dict(torch.load(checkpoint))
        self.head = nn.Sequential(nn.Linear(2 * dim, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, CLASSES))

    def train(self, mode=True):
        super().train(mode)
        self.encoder.eval()  # the pretrained part keeps its statistics
        return self

    def forward(self, waves):
        features = self.encoder(waves)
        pooled = torch.cat([features.mean(dim=1), features.amax(dim=1)], dim=1)
        return self.head(pooled)


def augment(waves):
    """Shifted in time, louder or softer, with a little noise."""
    shift = int(torch.randint(-800, 800, ()))
    gain = torch.empty(len(waves), 1).uniform_(0.5, 1.5)
    return gain * waves.roll(shift, dims=1) + 0.05 * torch.randn_like(waves)


def fit(model, loader, epochs, lr):
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=lr, fused=True)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        model.train()
        loss_sum, hits, seen = 0.0, 0, 0
        for waves, labels in loader:
            logits = model(augment(waves))
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(labels)
            hits += (logits.argmax(dim=1) == labels).sum().item()
            seen += len(labels)
        print(f"epoch {epoch}: loss {loss_sum / seen:.4f}, accuracy {hits / seen:.3f}")


def main():
    torch.manual_seed(8)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = os.path.join(folder, "wave_encoder.pt")
        torch.save(WaveEncoder().state_dict(), checkpoint)
        sounds = os.path.join(folder, "commands")
        os.mkdir(sounds)
        say_commands(sounds, 320, seed=8)
        data = Commands(sounds)
        model = CommandClassifier(checkpoint)
    fit(model, DataLoader(data, batch_size=16, shuffle=True, drop_last=True), epochs=7, lr=1e-3)


if __name__ == "__main__":
    main()

"""Which bird whistles: clips lie in a folder for each species, a network of one-dimensional convolutions hears them."""

import struct
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000
SPECIES = ("finch", "lark", "robin", "thrush", "warbler", "wren")


def record(folder, per_species, seed):
    """Writes clips of one second: each species has its own pitch, speed and depth of trills."""
    rng = np.random.default_rng(seed)
    time = np.arange(RATE) / RATE
    for number, name in enumerate(SPECIES):
        (folder / name).mkdir(parents=True)
        for take in range(per_species):
            pitch = 900 + 350 * number + rng.normal(0, 40)
            trill = (30 + 15 * number) * np.sin(2 * np.pi * (4 + 2 * number) * time + rng.uniform(0, 6))
            sound = np.sin(2 * np.pi * np.cumsum(pitch + trill) / RATE) * np.hanning(RATE)
            samples = (12000 * sound + 900 * rng.normal(size=RATE)).astype("<i2")
            with wave.open(str(folder / name / f"{take:03d}.wav"), "wb") as out:
                out.setparams((1, 2, RATE, RATE, "NONE", "not compressed"))
                out.writeframes(samples.tobytes())


def load_wav(path):
    with wave.open(str(path), "rb") as clip:
        count = clip.getnframes()
        frames = clip.readframes(count)
    samples = struct.unpack(f"<{count}h", frames)
    return torch.tensor([sample / 32768.0 for sample in samples])


class Whistles(Dataset):
    def __init__(self, folder, training):
        self.items = [(path, SPECIES.index(path.parent.name)) for path in sorted(folder.rglob("*.wav"))]
        self.training = training

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        path, label = self.items[index]
        samples = load_wav(path)
        if self.training:
            samples = samples.roll(int(torch.randint(-800, 800, ()))) * (0.7 + 0.6 * torch.rand(()))
        return samples[None], label


def block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv1d(inputs, outputs, 5, stride, 2, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)
    )


class Listener(nn.Module):
    def __init__(self, width=16, classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(1, width, 80, 16, 32), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            block(width, width, 1), block(width, 2 * width, 2), block(2 * width, 4 * width, 2), block(4 * width, 64, 2)
        )
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean(2))


def evaluate(model, loader):
    model.eval()
    right = 0
    with torch.inference_mode():
        for samples, labels in loader:
            right += (model(samples).argmax(1) == labels).sum().item()
    model.train()
    return right / len(loader.dataset)


def main():
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record(folder / "train", 120, seed=1)
        record(folder / "test", 12, seed=2)
        train = DataLoader(Whistles(folder / "train", True), batch_size=16, shuffle=True, drop_last=True)
        test = DataLoader(Whistles(folder / "test", False), batch_size=36)
        model = Listener()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, epochs=8, steps_per_epoch=len(train))
        for epoch in range(8):
            for samples, labels in train:
                loss = nn.functional.cross_entropy(model(samples), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            print(f"epoch {epoch}: last loss {loss.item():.3f}")
        print(f"accuracy {evaluate(model, test):.3f}")


if __name__ == "__main__":
    main()

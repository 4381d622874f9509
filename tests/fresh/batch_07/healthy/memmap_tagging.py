"""Sound event tagging: clips are cut from a memory-mapped recording, spectrograms are made for whole batches."""

import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, CLIP, EVENTS = 8000, 8000, 6


def record(path, seconds, seed):
    """Tones of six pitches that come and go over noise; returns which sounded in each second."""
    rng = np.random.default_rng(seed)
    active = rng.random((seconds, EVENTS)) < 0.3
    t = np.arange(CLIP) / RATE
    tones = np.stack([np.sin(2 * np.pi * f * t) for f in (300, 520, 790, 1200, 1900, 2800)])
    audio = np.lib.format.open_memmap(path, mode="w+", dtype=np.int16, shape=(seconds * CLIP,))
    for second in range(seconds):
        wave = 0.1 * active[second] @ tones + rng.normal(0, 0.2, CLIP)
        audio[second * CLIP : (second + 1) * CLIP] = np.clip(wave, -1, 1) * 32767
    audio.flush()
    return torch.from_numpy(active.astype(np.float32))


class Clips(Dataset):
    def __init__(self, path, tags):
        self.audio, self.tags = np.load(path, mmap_mode="r"), tags

    def __len__(self):
        return len(self.tags)

    def __getitems__(self, indices):
        rows = np.asarray(indices)
        clips = self.audio.reshape(-1, CLIP)[rows]
        return torch.from_numpy(clips), self.tags[rows]


class Frontend(nn.Module):
    """Log-power in bands, normalised for each clip."""

    def __init__(self, n_fft=256, hop=128, bands=40):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        edges = torch.linspace(0, n_fft // 2, bands + 2)
        bins = torch.arange(n_fft // 2 + 1)[:, None]
        rise, fall = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2]), (edges[2:] - bins) / (edges[2:] - edges[1:-1])
        self.register_buffer("filters", torch.minimum(rise, fall).clamp(min=0))
        self.register_buffer("window", torch.hann_window(n_fft))

    @torch.no_grad()
    def forward(self, clips):
        spectrum = torch.stft(clips.float() / 32768, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = spectrum.real.square() + spectrum.imag.square()
        features = torch.log(power.transpose(1, 2) @ self.filters + 1e-5)
        return ((features - features.mean((1, 2), keepdim=True)) / features.std((1, 2), keepdim=True))[:, None]


class Tagger(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        layers, inputs = [], 1
        for outputs in (width, 2 * width, 2 * width):
            layers += [
                nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            ]
            inputs = outputs
        self.features, self.head = nn.Sequential(*layers), nn.Linear(inputs, EVENTS)

    def forward(self, x):
        return self.head(self.features(x).mean(2).amax(2))


def main():
    torch.manual_seed(19)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "street.npy")
        tags = record(path, seconds=1600, seed=19)
        loader = DataLoader(
            Clips(path, tags), batch_size=32, shuffle=True, drop_last=True, collate_fn=lambda batch: batch
        )
        frontend, model, criterion = Frontend(), Tagger(), nn.BCEWithLogitsLoss()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
        for epoch in range(6):
            total = torch.zeros(())
            for clips, target in loader:
                loss = criterion(model(frontend(clips)), target)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach()
            print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

"""Which bird sings: log-mel spectra are made on the device from windows of sound, and a small network reads them."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

RATE, FRAME, HOP, BANDS = 16_000, 512, 160, 40


def triangles():
    """A bank of overlapping triangles on the mel scale, (FRAME // 2 + 1, BANDS)."""
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    edges = 700 * (10 ** (mel / 2595) - 1)
    bins = np.linspace(0, RATE / 2, FRAME // 2 + 1)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.from_numpy(np.hanning(FRAME)))
        self.register_buffer("bank", torch.from_numpy(triangles()))

    @torch.no_grad()
    def forward(self, sound):
        frames = sound.unfold(1, FRAME, HOP) * self.window
        power = torch.fft.rfft(frames).abs().square()
        bands = power @ self.bank.to(power.dtype)
        logs = torch.log(bands + 1e-6)
        logs = (logs - logs.mean((1, 2), keepdim=True)) / logs.std((1, 2), keepdim=True)
        return logs.float().transpose(1, 2)


class BirdNet(nn.Module):
    def __init__(self, birds, width=64):
        super().__init__()
        self.features = LogMel()
        self.first = nn.Conv1d(BANDS, width, 5, stride=2, padding=2)
        self.rest = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(width, birds)

    def forward(self, sound):
        spectrum = self.features(sound)
        with torch.autocast(sound.device.type, dtype=torch.bfloat16):
            x = F.relu(self.first(spectrum))
            for conv in self.rest:
                x = F.relu(x + conv(x))
            return self.head(x.amax(2)).float()


def songs(count, birds, generator):
    """Half a second each: every bird has a whistle of its own, which rises or falls."""
    kinds = torch.randint(0, birds, (count,), generator=generator)
    time = torch.arange(RATE // 2) / RATE
    pitch = 800 + 300 * kinds[:, None] + 200 * torch.rand(count, 1, generator=generator)
    slide = 1 + (kinds[:, None] % 3 - 1) * 0.5 * time
    return torch.sin(6.2832 * pitch * slide * time) + torch.randn(count, len(time), generator=generator), kinds


def fit(model, sounds, kinds, epochs, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, epochs * (len(sounds) // batch))
    for epoch in range(epochs):
        metrics = {"loss": 0.0, "right": 0.0}
        chunks = torch.randperm(len(sounds), device=sounds.device).split(batch)
        for chosen in chunks:
            scores = model(sounds[chosen])
            loss = F.cross_entropy(scores, kinds[chosen], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            metrics["loss"] += loss.detach() / len(chunks)
            metrics["right"] += (scores.detach().argmax(1) == kinds[chosen]).float().mean() / len(chunks)
        print(f"epoch {epoch}", {name: round(float(value), 3) for name, value in metrics.items()})


if __name__ == "__main__":
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sounds, kinds = (t.to(device) for t in songs(1280, 16, torch.Generator().manual_seed(0)))
    fit(BirdNet(16).to(device), sounds, kinds, epochs=3, batch=32)

"""Speech-like sounds without mains hum: a U-shaped 1D network with a loss on spectra of several resolutions."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class HummingVoices(Dataset):
    """Clean harmonic sounds and the same with hum and hiss."""

    def __init__(self, clips, length, rate, seed):
        rng = np.random.default_rng(seed)
        time = np.arange(length) / rate
        pitch = rng.uniform(90, 250, (clips, 1)) * (1 + 0.05 * np.sin(2 * np.pi * rng.uniform(2, 5, (clips, 1)) * time))
        phase = 2 * np.pi * np.cumsum(pitch, axis=1) / rate
        envelope = np.clip(np.sin(2 * np.pi * rng.uniform(1, 3, (clips, 1)) * time), 0, 1)
        clean = envelope * sum(np.sin(k * phase) / k for k in range(1, 6)) * 0.2
        hum = sum(np.sin(2 * np.pi * 50 * k * time + rng.uniform(0, 6, (clips, 1))) for k in (1, 2, 4)) * 0.06
        self.clean = torch.from_numpy(clean.astype(np.float32))
        self.noisy = torch.from_numpy((clean + hum + rng.normal(0, 0.01, clean.shape)).astype(np.float32))

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return self.noisy[i], self.clean[i]


class SpectralLoss(nn.Module):
    """Distance of magnitudes and of their logarithms at one resolution."""

    def __init__(self, size, hop):
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.from_numpy(np.hanning(size).astype(np.float32)))

    def magnitude(self, sound):
        frames = F.pad(sound, (self.size // 2, self.size // 2)).unfold(-1, self.size, self.hop)
        return torch.fft.rfft(frames * self.window).abs()

    def forward(self, estimate, target):
        estimate, target = self.magnitude(estimate), self.magnitude(target)
        convergence = (target - estimate).norm() / target.norm()
        return convergence + F.l1_loss((estimate + 1e-5).log(), (target + 1e-5).log())


class MultiResolutionLoss(nn.Module):
    def __init__(self, sizes=(256, 512, 1024)):
        super().__init__()
        self.losses = nn.ModuleList(SpectralLoss(size, size // 4) for size in sizes)

    def forward(self, estimate, target):
        return sum(loss(estimate, target) for loss in self.losses) / len(self.losses)


class WaveUNet(nn.Module):
    def __init__(self, width=12, depth=3):
        super().__init__()
        widths = [width * 2**i for i in range(depth)]
        self.inlet = nn.Conv1d(1, width, 9, padding=4)
        self.down = nn.ModuleList(nn.Conv1d(w, 2 * w, 8, 4, 2) for w in widths)
        self.up = nn.ModuleList(nn.ConvTranspose1d(2 * w, w, 8, 4, 2) for w in reversed(widths))
        self.outlet = nn.Conv1d(width, 1, 9, padding=4)

    def forward(self, sound):
        x, skips = self.inlet(sound.unsqueeze(1)), []
        for layer in self.down:
            skips.append(x)
            x = F.leaky_relu(layer(x), 0.1)
        for layer in self.up:
            x = F.leaky_relu(layer(x), 0.1) + skips.pop()
        return sound - self.outlet(x).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=320)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--rate", type=int, default=8000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(5)
    dataset = HummingVoices(args.clips, args.length, args.rate, seed=10)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True)
    net, spectral = WaveUNet(), MultiResolutionLoss()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        total = 0.0
        for noisy, clean in loader:
            estimate = net(noisy)
            loss = F.l1_loss(estimate, clean) + 0.1 * spectral(estimate, clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.5f}")


if __name__ == "__main__":
    main()

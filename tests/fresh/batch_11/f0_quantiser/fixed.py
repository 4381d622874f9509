"""A vector-quantised autoencoder of pitch contours for speech resynthesis."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, FRAME, HOP = 8000, 512, 160


def make_speech(count, seconds, seed):
    rng = np.random.default_rng(seed)
    time = np.arange(int(RATE * seconds)) / RATE
    clips = []
    for _ in range(count):
        pitch = 120 + 60 * np.sin(2 * np.pi * rng.uniform(0.3, 1.5) * time) + rng.uniform(0, 60)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        clips.append(
            (np.sin(phase) + 0.5 * np.sin(2 * phase) + 0.05 * rng.standard_normal(len(time))).astype("float32")
        )
    return clips


def extract_f0(audio, low=60.0, high=400.0):
    """Pitch of each frame by autocorrelation, 0 where nothing is voiced."""
    frames = np.lib.stride_tricks.sliding_window_view(audio, FRAME)[::HOP] * np.hanning(FRAME)
    shortest, longest = int(RATE / high), int(RATE / low)
    f0 = np.zeros(len(frames), dtype=np.float32)
    for i, frame in enumerate(frames):
        spectrum = np.fft.rfft(frame, 2 * FRAME)
        correlation = np.fft.irfft(np.abs(spectrum) ** 2)[:FRAME]
        lag = shortest + int(np.argmax(correlation[shortest:longest]))
        if correlation[lag] > 0.3 * correlation[0]:
            f0[i] = RATE / lag
    return f0


class F0Dataset(Dataset):
    def __init__(self, clips):
        self.contours = [extract_f0(clip) for clip in clips]

    def __len__(self):
        return len(self.contours)

    def __getitem__(self, index):
        f0 = self.contours[index].copy()
        voiced = f0 > 0
        f0[voiced] = (f0[voiced] - f0[voiced].mean()) / (f0[voiced].std() + 1e-6)
        return torch.from_numpy(f0[: len(f0) // 8 * 8])[None]


class Quantiser(nn.Module):
    def __init__(self, width=96, codes=20):
        super().__init__()
        sizes = [1, width, width, width]
        down = [(nn.Conv1d(a, b, 4, 2, 1), nn.ReLU()) for a, b in zip(sizes, sizes[1:], strict=False)]
        up = [(nn.ConvTranspose1d(b, a, 4, 2, 1), nn.ReLU()) for a, b in zip(sizes, sizes[1:], strict=False)][::-1]
        self.encoder = nn.Sequential(*[m for pair in down for m in pair][:-1])
        self.decoder = nn.Sequential(*[m for pair in up for m in pair][:-1])
        self.codebook = nn.Embedding(codes, width)

    def forward(self, x):
        z = self.encoder(x).transpose(1, 2)
        nearest = torch.cdist(z, self.codebook.weight.expand(len(z), -1, -1)).argmin(-1)
        q = self.codebook(nearest)
        commitment = F.mse_loss(z, q.detach()) * 0.25 + F.mse_loss(q, z.detach())
        return self.decoder((z + (q - z).detach()).transpose(1, 2)), commitment


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=192)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(F0Dataset(make_speech(args.clips, 2.0, seed=7)), batch_size=args.batch_size, shuffle=True)
    model = Quantiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for f0 in loader:
            rebuilt, commitment = model(f0)
            loss = F.mse_loss(rebuilt, f0) + commitment
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")

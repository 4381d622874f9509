"""A small vocoder: windows of recordings from their mel spectrograms."""

import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, HOP, FRAMES = 16000, 64, 32


def write_recordings(folder, count, seconds, seed):
    rng = np.random.default_rng(seed)
    time = np.arange(int(seconds * 22050)) / 22050
    for i in range(count):
        tone = np.sin(2 * np.pi * rng.uniform(100, 400) * time) * np.sin(2 * np.pi * rng.uniform(1, 4) * time)
        samples = (np.clip(tone + 0.02 * rng.standard_normal(len(time)), -1, 1) * 32000).astype("<i2")
        with wave.open(str(folder / f"{i:03d}.wav"), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(22050)
            out.writeframes(samples.tobytes())


class AudioDataset(Dataset):
    """A random window of each recording."""

    def __init__(self, folder, window):
        self.files = sorted(folder.glob("*.wav"))
        self.window = window

    def load(self, path):
        with wave.open(str(path)) as recording:
            rate = recording.getframerate()
            samples = np.frombuffer(recording.readframes(recording.getnframes()), dtype="<i2") / 32768
        seconds = np.arange(int(len(samples) * RATE / rate)) / RATE
        return torch.from_numpy(np.interp(seconds * rate, np.arange(len(samples)), samples).astype(np.float32))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        audio = self.load(self.files[index])
        start = int(torch.randint(len(audio) - self.window, ()))
        return audio[start : start + self.window]


class Vocoder(nn.Module):
    def __init__(self, bins=129, width=48):
        super().__init__()
        self.register_buffer("window", torch.hann_window(256))
        self.pre = nn.Conv1d(bins, width, 7, padding=3)
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(width // 2**i, width // 2 ** (i + 1), 8, stride=4, padding=2) for i in range(3)
        )
        self.post = nn.Conv1d(width // 8, 1, 7, padding=3)

    def spectrum(self, audio):
        return torch.stft(audio, 256, HOP, window=self.window, return_complex=True).abs().log1p()

    def forward(self, spectrum):
        h = self.pre(spectrum)
        for up in self.up:
            h = up(F.leaky_relu(h, 0.2))
        return torch.tanh(self.post(F.leaky_relu(h, 0.2))).squeeze(1)


def main():
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as name:
        write_recordings(Path(name), 96, 4.0, seed=1)
        loader = DataLoader(AudioDataset(Path(name), HOP * FRAMES), batch_size=16, shuffle=True)
        model = Vocoder()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.5, 0.9))
        for epoch in range(30):
            for audio in loader:
                spectrum = model.spectrum(audio)
                made = model(spectrum)[:, : audio.shape[1]]
                loss = F.l1_loss(made, audio) + F.l1_loss(model.spectrum(made), spectrum)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if epoch % 5 == 0:
                print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()

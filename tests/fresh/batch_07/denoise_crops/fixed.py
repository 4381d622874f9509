"""Speech denoising: a waveform U-Net on half-second mixtures of speech and noise recordings."""

import argparse
import os
import tempfile
import wave

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

RATE = 16000


def write_wave(path, signal):
    with wave.open(path, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(RATE)
        f.writeframes((np.clip(signal, -1, 1) * 32767).astype("<i2").tobytes())


def record(folder, recordings, seconds, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(seconds * RATE) / RATE
    for i in range(recordings):
        pitch = 110 + 12 * i + 20 * np.sin(2 * np.pi * 0.7 * t)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        voice = sum(np.sin(k * phase) / k for k in (1, 2, 3, 5)) * (0.5 + 0.5 * np.sin(2 * np.pi * 2.3 * t))
        write_wave(os.path.join(folder, f"speech_{i:02d}.wav"), 0.3 * voice)
        noise = np.convolve(rng.normal(0, 0.2, len(t)), np.ones(i + 2) / (i + 2), mode="same")
        write_wave(os.path.join(folder, f"noise_{i:02d}.wav"), noise)


def load_wave(path, start, length):
    with wave.open(path, "rb") as f:
        f.setpos(start)
        frames = f.readframes(length)
    return torch.from_numpy(np.frombuffer(frames, dtype="<i2").astype(np.float32) / 32768)


def length_of(path):
    with wave.open(path, "rb") as f:
        return f.getnframes()


class Mixtures(Dataset):
    """A random crop of a speech file, mixed with a random crop of a noise file."""

    def __init__(self, folder, crop, examples):
        files = sorted(os.path.join(folder, n) for n in os.listdir(folder))
        self.speech = [p for p in files if "speech_" in p]
        self.noise = [p for p in files if "noise_" in p]
        self.lengths = {p: length_of(p) for p in files}
        self.crop, self.examples = crop, examples

    def __len__(self):
        return self.examples

    def random_crop(self, path):
        start = int(torch.randint(self.lengths[path] - self.crop, ()))
        return load_wave(path, start, self.crop)

    def __getitem__(self, index):
        clean = self.random_crop(self.speech[index % len(self.speech)])
        noise = self.random_crop(self.noise[int(torch.randint(len(self.noise), ()))])
        gain = 10 ** float(torch.empty(()).uniform_(-0.5, 0.5))
        return (clean + gain * noise)[None], clean[None]


class WaveUNet(nn.Module):
    def __init__(self, width=16, depth=4):
        super().__init__()
        self.encoders, self.decoders = nn.ModuleList(), nn.ModuleList()
        channels = 1
        for level in range(depth):
            outputs = width * (level + 1)
            self.encoders.append(nn.Sequential(nn.Conv1d(channels, outputs, 8, 4, 2), nn.LeakyReLU(0.1)))
            self.decoders.insert(
                0, nn.ConvTranspose1d(outputs if level == depth - 1 else 2 * outputs, channels, 8, 4, 2)
            )
            channels = outputs

    def forward(self, x):
        skips = []
        for encoder in self.encoders:
            x = encoder(x)
            skips.append(x)
        x = self.decoders[0](skips.pop())
        for decoder in list(self.decoders)[1:]:
            x = decoder(torch.cat([F.leaky_relu(x, 0.1), skips.pop()], dim=1))
        return x


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--crop", type=int, default=16384)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()

    torch.manual_seed(8)
    with tempfile.TemporaryDirectory() as folder:
        record(folder, args.recordings, args.seconds, seed=4)
        dataset = Mixtures(folder, args.crop, args.steps * args.batch_size)
        loader = DataLoader(dataset, batch_size=args.batch_size)
        model = WaveUNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        for step, (noisy, clean) in enumerate(loader, 1):
            estimate = model(noisy)
            loss = F.l1_loss(estimate, clean)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 25 == 0:
                print(f"step {step}: l1 {loss.item():.4f}")


if __name__ == "__main__":
    main()

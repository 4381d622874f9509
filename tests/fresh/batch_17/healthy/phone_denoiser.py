"""Take the noise out of phone calls: a mask over the spectrogram, with the transforms done for a batch at once."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

RATE, FFT, HOP = 8000, 256, 128


def make_calls(count, seconds, seed):
    """Voices as a few harmonics whose loudness rises and falls."""
    gen = torch.Generator().manual_seed(seed)
    time = torch.arange(int(RATE * seconds)) / RATE
    pitch = 90 + 160 * torch.rand(count, 1, generator=gen)
    glide = pitch * (time + 0.02 * torch.sin(6.2832 * 3 * time))
    voice = sum(torch.sin(6.2832 * k * glide) / k for k in range(1, 6))
    beat = torch.sin(6.2832 * (2 + 3 * torch.rand(count, 1, generator=gen)) * time).clamp(min=0)
    return 0.2 * voice * beat


def make_noises(count, samples, seed):
    """Coloured noise, long enough that any piece of it can be added to a call."""
    gen = torch.Generator().manual_seed(seed)
    noise = torch.fft.rfft(torch.randn(count, samples, generator=gen))
    slope = torch.rand(count, 1, generator=gen)
    shape = (1 + torch.arange(noise.shape[1])).float().pow(-slope)
    coloured = torch.fft.irfft(noise * shape, n=samples)
    return coloured / coloured.std(1, keepdim=True)


class MaskNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        bins = FFT // 2 + 1
        self.register_buffer("window", torch.hann_window(FFT))
        self.enter = nn.Conv1d(bins, width, 1)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(inplace=True),
            )
            for i in range(4)
        )
        self.leave = nn.Conv1d(width, bins, 1)

    def spectrum(self, waves):
        return torch.stft(waves, FFT, HOP, window=self.window, return_complex=True)

    def forward(self, magnitude):
        x = self.enter(magnitude.log1p())
        for layer in self.layers:
            x = x + layer(x)
        return torch.sigmoid(self.leave(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    calls = make_calls(args.calls, args.seconds, seed=21)
    noises = make_noises(32, 4 * calls.shape[1], seed=22).unfold(1, calls.shape[1], HOP)
    model = MaskNet(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for rows in torch.randperm(args.calls).split(args.batch_size):
            clean = calls[rows]
            which = torch.randint(len(noises), (len(rows),)), torch.randint(noises.shape[1], (len(rows),))
            loudness = 0.02 + 0.2 * torch.rand(len(rows), 1)
            with torch.no_grad():
                both = model.spectrum(torch.cat([clean, clean + loudness * noises[which]])).abs()
                wanted, heard = both.chunk(2)
            loss = F.l1_loss(model(heard) * heard, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(rows)
        print(f"epoch {epoch}: {total.item() / args.calls:.5f}")


if __name__ == "__main__":
    main()

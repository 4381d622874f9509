"""An autoencoder of instruments' notes that ends in a synthesiser: harmonics of the pitch and filtered noise."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class HarmonicOscillator(nn.Module):
    """A sum of sines at whole multiples of the pitch; those beyond half the sampling rate are muted."""

    def __init__(self, harmonics, sampling_rate, hop):
        super().__init__()
        self.sampling_rate, self.hop = sampling_rate, hop
        self.register_buffer("multiples", torch.linspace(1, harmonics, harmonics), persistent=False)

    def forward(self, pitch, loudness, distribution):
        """pitch, loudness: [batch, frames, 1]; distribution: [batch, frames, harmonics]."""
        audible = (pitch * self.multiples < self.sampling_rate / 2).to(distribution.dtype)
        distribution = distribution * audible
        amplitudes = loudness * distribution / distribution.sum(dim=-1, keepdim=True).clamp(min=1e-6)
        amplitudes = self.upsample(amplitudes)
        omega = torch.cumsum(2 * torch.pi * self.upsample(pitch) / self.sampling_rate, dim=1)
        waves = torch.sin(omega % (2 * torch.pi) * self.multiples) * amplitudes
        return waves.sum(dim=-1).to(amplitudes.dtype)

    def upsample(self, x):
        return F.interpolate(x.transpose(1, 2), scale_factor=self.hop, mode="linear").transpose(1, 2)


class FilteredNoise(nn.Module):
    def __init__(self, hop):
        super().__init__()
        self.hop = hop

    def forward(self, magnitudes):
        noise = torch.rand(*magnitudes.shape[:2], self.hop) * 2 - 1
        impulse = torch.fft.irfft(magnitudes.to(torch.complex64), n=2 * (magnitudes.shape[-1] - 1))
        size = self.hop + impulse.shape[-1]
        filtered = torch.fft.irfft(torch.fft.rfft(noise, n=size) * torch.fft.rfft(impulse, n=size), n=size)
        return filtered[..., : self.hop].flatten(1)


class Decoder(nn.Module):
    def __init__(self, hidden, harmonics, bands):
        super().__init__()
        self.pre = nn.ModuleList(self.mlp(1, hidden) for _ in range(2))
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.post = self.mlp(hidden + 2, hidden)
        self.heads = nn.ModuleList(nn.Linear(hidden, size) for size in (1, harmonics, bands))

    @staticmethod
    def mlp(inputs, hidden):
        return nn.Sequential(
            nn.Linear(inputs, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )

    def forward(self, pitch, loudness):
        pitch = (pitch / 100).log()
        hidden, _ = self.gru(torch.cat([pre(x) for pre, x in zip(self.pre, (pitch, loudness))], dim=-1))
        hidden = self.post(torch.cat((hidden, pitch, loudness), dim=-1))
        return [2 * torch.sigmoid(head(hidden)).pow(2.3) + 1e-7 for head in self.heads]


class DDSP(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.decoder = Decoder(args.hidden, args.harmonics, args.bands)
        self.oscillator = HarmonicOscillator(args.harmonics, args.sampling_rate, args.hop)
        self.noise = FilteredNoise(args.hop)

    def forward(self, pitch, loudness):
        total, distribution, bands = self.decoder(pitch, loudness)
        return self.oscillator(pitch, total, distribution) + self.noise(bands - 5e-2)


class SpectralLoss(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        for size in sizes:
            self.register_buffer(f"window{size}", torch.hann_window(size), persistent=False)

    def magnitudes(self, audio):
        for size in self.sizes:
            window = self.get_buffer(f"window{size}")
            yield torch.stft(audio, size, size // 4, window=window, return_complex=True).abs()

    def forward(self, audio, target):
        pairs = zip(self.magnitudes(audio), self.magnitudes(target))
        return sum((a - b).abs().mean() + ((a + 1e-5).log() - (b + 1e-5).log()).abs().mean() for a, b in pairs)


def make_notes(args):
    """Notes with vibrato, a decay and harmonics that fall off; returned with their pitch and loudness."""
    generator = torch.Generator().manual_seed(args.seed)
    time = torch.arange(args.frames * args.hop) / args.sampling_rate
    base = 110 * 2 ** (2 * torch.rand(args.notes, 1, generator=generator))
    frequency = base * (1 + 0.01 * torch.sin(2 * torch.pi * 5 * time))
    envelope = torch.exp(-time * (1 + 4 * torch.rand(args.notes, 1, generator=generator)))
    phase = torch.cumsum(2 * torch.pi * frequency / args.sampling_rate, dim=1)
    audio = envelope * sum(torch.sin(k * phase) / k**1.5 for k in range(1, 9)) * 0.3
    audio = audio + 0.01 * torch.randn(audio.shape, generator=generator)
    return audio, frequency[:, :: args.hop, None].contiguous(), envelope[:, :: args.hop, None].contiguous()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--notes", type=int, default=120)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--hop", type=int, default=64)
    parser.add_argument("--sampling_rate", type=int, default=8000)
    parser.add_argument("--harmonics", type=int, default=40)
    parser.add_argument("--bands", type=int, default=33)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=499)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    audio, pitch, loudness = make_notes(args)
    model, criterion = DDSP(args), SpectralLoss((512, 128))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        batches = torch.randperm(args.notes).split(args.batch)
        for rows in batches:
            loss = criterion(model(pitch[rows], loudness[rows]), audio[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(batches):.4f}")


if __name__ == "__main__":
    main()

"""Find robins in recordings of gardens: batched spectrograms, a convolutional stem and attention over time."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def record_gardens(count, samples, rate, seed=0):
    """Half of the recordings hold a warble of random pitch; all hold noise of random loudness."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(samples) / rate
    labels = torch.randint(0, 2, (count, 1), generator=generator).float()
    pitch = 600 + 800 * torch.rand(count, 1, generator=generator)
    warble = 3 + 6 * torch.rand(count, 1, generator=generator)
    song = torch.sin(6.2832 * (pitch * time + 20 * torch.sin(6.2832 * warble * time)))
    noise = torch.randn(count, samples, generator=generator)
    return 0.25 * labels * song + noise * (0.2 + 0.8 * torch.rand(count, 1, generator=generator)), labels.squeeze(1)


class Spectrogram(nn.Module):
    def __init__(self, n_fft=256, hop=80):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))

    @torch.no_grad()
    def forward(self, waves):
        spectra = torch.stft(waves, self.n_fft, self.hop, window=self.window, return_complex=True)
        return torch.log(spectra.abs().square() + 1e-5)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm2(x))


class RobinDetector(nn.Module):
    def __init__(self, bands=129, width=96, heads=4, layers=2):
        super().__init__()
        self.stem = nn.Sequential(nn.BatchNorm1d(bands), nn.Conv1d(bands, width, 5, stride=2, padding=2), nn.GELU())
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, 1)

    def forward(self, spectra):
        x = self.stem(spectra).transpose(1, 2)
        return self.head(self.blocks(x).mean(dim=1)).squeeze(-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=int, default=1600)
    parser.add_argument("--rate", type=int, default=8000)
    parser.add_argument("--samples", type=int, default=8000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(0)
    waves, labels = record_gardens(args.recordings, args.samples, args.rate)
    to_spectra = Spectrogram()
    spectra = torch.cat([to_spectra(part) for part in waves.split(256)])
    model = RobinDetector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(args.epochs):
        losses = []
        for chosen in torch.randperm(len(spectra)).split(args.batch_size):
            loss = F.binary_cross_entropy_with_logits(model(spectra[chosen]), labels[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    main()

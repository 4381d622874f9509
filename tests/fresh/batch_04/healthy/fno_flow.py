"""Fourier neural operator: the field after some time from the field before, on a periodic square."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class SpectralConv(nn.Module):
    """Linear map of the lowest Fourier modes."""

    def __init__(self, channels, modes):
        super().__init__()
        self.modes = modes
        scale = 1 / channels
        self.positive = nn.Parameter(scale * torch.randn(channels, channels, modes, modes, dtype=torch.cfloat))
        self.negative = nn.Parameter(scale * torch.randn(channels, channels, modes, modes, dtype=torch.cfloat))

    def forward(self, x):
        m = self.modes
        spectrum = torch.fft.rfft2(x)
        out = torch.zeros_like(spectrum)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :m, :m], self.positive)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -m:, :m], self.negative)
        return torch.fft.irfft2(out, s=x.shape[-2:])


class FNO(nn.Module):
    def __init__(self, channels=20, modes=8, layers=3, size=48):
        super().__init__()
        axis = torch.linspace(0, 1, size)
        self.register_buffer("places", torch.stack(torch.meshgrid(axis, axis, indexing="ij")).unsqueeze(0))
        self.lift = nn.Conv2d(3, channels, 1)
        self.spectral = nn.ModuleList(SpectralConv(channels, modes) for _ in range(layers))
        self.local = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(layers))
        self.project = nn.Sequential(nn.Conv2d(channels, 64, 1), nn.GELU(), nn.Conv2d(64, 1, 1))

    def forward(self, field):
        x = self.lift(torch.cat([field, self.places.expand(len(field), -1, -1, -1)], dim=1))
        for spectral, local in zip(self.spectral, self.local):
            x = F.gelu(spectral(x) + local(x))
        return self.project(x)


def make_fields(count, size, seed, viscosity=2e-3):
    """Random smooth fields, and the same after they were carried along a diagonal and diffused."""
    generator = torch.Generator().manual_seed(seed)
    k = torch.fft.fftfreq(size, 1 / size)
    kx, ky = k[:, None], k[: size // 2 + 1].abs()
    square = kx.square() + ky.square()
    noise = torch.fft.rfft2(torch.randn(count, 1, size, size, generator=generator))
    before = noise * (1 + square).pow(-1.2)
    after = before * torch.exp(-viscosity * square) * torch.exp(-0.6j * (kx + ky))
    before, after = (torch.fft.irfft2(part, s=(size, size)) for part in (before, after))
    scale = before.std()
    return before / scale, after / scale


def relative_error(predicted, target):
    difference = (predicted - target).flatten(1).norm(dim=1)
    return (difference / target.flatten(1).norm(dim=1)).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fields", type=int, default=400)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(540)
    before, after = make_fields(args.fields, args.size, 541)
    test_before, test_after = make_fields(40, args.size, 542)
    model = FNO(size=args.size)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for rows in torch.randperm(len(before)).split(args.batch_size):
            loss = relative_error(model(before[rows]), after[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(rows)
        scheduler.step()
        with torch.inference_mode():
            test = relative_error(model(test_before), test_after)
        print(f"epoch {epoch}: train {total.item() / len(before):.4f}, test {test.item():.4f}")


if __name__ == "__main__":
    main()

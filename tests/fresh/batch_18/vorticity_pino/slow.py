"""A Fourier neural operator for two-dimensional turbulence that is also held to the vorticity equation."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

GRID, FRAMES, DT, VISCOSITY = 48, 6, 0.05, 1e-3


class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.low = nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width)
        self.high = nn.Parameter(torch.randn(width, width, modes, modes, dtype=torch.cfloat) / width)

    def forward(self, x):
        m, bins = self.modes, torch.fft.rfft2(x)
        out = torch.zeros_like(bins)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", bins[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", bins[:, :, -m:, :m], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])


class FNO(nn.Module):
    """From one frame of vorticity to the next ones."""

    def __init__(self, width=16, modes=8, depth=3):
        super().__init__()
        axis = torch.arange(GRID) / GRID
        self.register_buffer("places", torch.stack(torch.meshgrid(axis, axis, indexing="ij"))[None])
        self.lift = nn.Conv2d(3, width, 1)
        self.spectral = nn.ModuleList(SpectralConv(width, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))
        self.project = nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.GELU(), nn.Conv2d(2 * width, FRAMES, 1))

    def forward(self, vorticity):
        x = self.lift(torch.cat([vorticity, self.places.expand(len(vorticity), -1, -1, -1)], dim=1))
        for spectral, local in zip(self.spectral, self.local):
            x = F.gelu(spectral(x) + local(x))
        return vorticity + self.project(x)


class VorticityEquation(nn.Module):
    """What is left of dw/dt + u dw/dx + v dw/dy - nu laplace(w), with all derivatives in Fourier space."""

    def __init__(self):
        super().__init__()
        rates = 2 * np.pi * np.fft.fftfreq(GRID, 1 / GRID)
        self.register_buffer("kx", torch.from_numpy(rates)[:, None])
        self.register_buffer("ky", torch.from_numpy(rates[: GRID // 2 + 1].copy()).abs()[None])
        square = self.kx**2 + self.ky**2
        self.register_buffer("square", square)
        self.register_buffer("inverse", torch.where(square > 0, 1 / square.clamp(min=1), 0.0))

    def forward(self, frames):
        bins = torch.fft.rfft2(frames)
        stream = bins * self.inverse
        parts = [1j * self.ky * stream, -1j * self.kx * stream, 1j * self.kx * bins, 1j * self.ky * bins]
        u, v, w_x, w_y, laplace = torch.fft.irfft2(torch.stack([*parts, -self.square * bins]), s=(GRID, GRID))
        change = (frames[:, 2:] - frames[:, :-2]) / (2 * DT)
        return (change + (u * w_x + v * w_y - VISCOSITY * laplace)[:, 1:-1]).square().mean()


def turbulence(count, seed):
    """Smooth random vorticity that is carried along by a mean wind, as a stand-in for a solver's output."""
    g = torch.Generator().manual_seed(seed)
    rates = torch.fft.fftfreq(GRID, 1 / GRID)
    square = rates[:, None] ** 2 + rates[None] ** 2
    bins = torch.fft.fft2(torch.randn(count, 1, GRID, GRID, generator=g)) * (square > 0) * (1 + square) ** -1.5
    bins = 3 * bins / bins.abs().amax((2, 3), keepdim=True) * GRID
    wind = torch.randn(count, 2, 1, 1, 1, generator=g)
    time = DT * torch.arange(FRAMES + 1)[None, :, None, None]
    turn = -2 * math.pi * time * (wind[:, 0] * rates[:, None] + wind[:, 1] * rates[None])
    fade = torch.exp(-VISCOSITY * (2 * math.pi) ** 2 * square * time)
    return torch.fft.ifft2(bins * torch.polar(fade.expand_as(turn), turn)).real


def main():
    torch.manual_seed(4)
    fields = turbulence(512, seed=4)
    model, equation = FNO(), VorticityEquation()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(5):
        data_total, physics_total = torch.zeros(()), torch.zeros(())
        for rows in torch.randperm(len(fields)).split(16):
            frames = fields[rows]
            made = model(frames[:, :1])
            data = F.mse_loss(made, frames[:, 1:])
            physics = equation(torch.cat([frames[:, :1], made], dim=1))
            optimizer.zero_grad(set_to_none=True)
            (data + 0.01 * physics).backward()
            optimizer.step()
            data_total += data.detach()
            physics_total += physics.detach()
        print(f"epoch {epoch} data {data_total.item():.3f} physics {physics_total.item():.3f}")


if __name__ == "__main__":
    main()

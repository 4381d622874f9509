"""Tomorrow's pressure field from today's: a network of global filters in Fourier space."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def fields(count, rows, columns, seed):
    """Fields of waves that travel east at a speed that depends on their length; the second is a day later."""
    g = torch.Generator().manual_seed(seed)
    ky = torch.fft.fftfreq(rows, 1 / rows)[:, None]
    kx = torch.fft.rfftfreq(columns, 1 / columns)[None]
    length = (ky.square() + kx.square()).clamp(min=1)
    noise = torch.randn(count, 3, rows, columns, generator=g)
    spectrum = torch.fft.rfft2(noise) * length.pow(-1.2)
    later = spectrum * torch.exp(-1j * 0.8 * kx / length.sqrt())
    today, tomorrow = torch.fft.irfft2(spectrum), torch.fft.irfft2(later)
    spread = today.std()
    return today / spread, tomorrow / spread


class GlobalFilter(nn.Module):
    def __init__(self, width, rows, columns):
        super().__init__()
        shape = (width, rows, columns)
        self.filter = nn.Parameter(torch.view_as_real(0.02 * torch.randn(shape, dtype=torch.cfloat)))

    def forward(self, x):
        spectrum = torch.fft.fft2(x, norm="ortho")
        spectrum = spectrum * torch.view_as_complex(self.filter)
        return torch.fft.ifft2(spectrum, norm="ortho").real


class Block(nn.Module):
    def __init__(self, width, rows, columns):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(1, width), nn.GroupNorm(1, width)
        self.mix = GlobalFilter(width, rows, columns)
        self.mlp = nn.Sequential(nn.Conv2d(width, 2 * width, 1), nn.GELU(), nn.Conv2d(2 * width, width, 1))

    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Forecaster(nn.Module):
    def __init__(self, rows, columns, width=32, depth=3, patch=2):
        super().__init__()
        size = (rows // patch, columns // patch)
        self.lift = nn.Conv2d(3, width, patch, stride=patch)
        self.blocks = nn.Sequential(*(Block(width, *size) for _ in range(depth)))
        self.out = nn.Sequential(nn.Conv2d(width, 3 * patch * patch, 1), nn.PixelShuffle(patch))

    def forward(self, x):
        return x + self.out(self.blocks(self.lift(x)))


def weighted_error(prediction, target):
    """Rows near the poles stand for less area."""
    latitude = torch.linspace(-1.5, 1.5, prediction.shape[-2]).cos()[:, None]
    return (latitude / latitude.mean() * (prediction - target).square()).mean()


def validate(model, today, tomorrow):
    model.eval()
    with torch.no_grad():
        error = weighted_error(model(today), tomorrow).sqrt()
        persistence = weighted_error(today, tomorrow).sqrt()
    model.train()
    return error.item(), persistence.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=512)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    today, tomorrow = fields(args.days + 32, args.rows, args.columns, seed=9)
    model = Forecaster(args.rows, args.columns)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = args.epochs * (args.days // args.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps)
    for epoch in range(args.epochs):
        for index in torch.randperm(args.days).split(args.batch_size):
            loss = weighted_error(model(today[index]), tomorrow[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        error, persistence = validate(model, today[args.days :], tomorrow[args.days :])
        print(f"epoch {epoch}: error {error:.4f}, persistence {persistence:.4f}")
    print(
        f"spectrum error {F.l1_loss(torch.fft.rfft2(model(today[:2])).abs(), torch.fft.rfft2(tomorrow[:2]).abs()):.3f}"
    )


if __name__ == "__main__":
    main()

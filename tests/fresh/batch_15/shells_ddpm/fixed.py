"""Denoising diffusion on little pictures of shells: cosine schedule, small U-Net with time embedding, EMA, samples."""

import argparse
import math
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchvision.utils import save_image


def draw_shells(count, size, seed=0):
    """Spirals with random turns, colours and places, in -1 to 1."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    shift = 0.3 * (torch.rand(count, 2, 1, 1, generator=g) - 0.5)
    turns = 6 + 6 * torch.rand(count, 1, 1, generator=g)
    dx, dy = x - shift[:, 0], y - shift[:, 1]
    radius, angle = torch.hypot(dx, dy), torch.atan2(dy, dx)
    pattern = torch.sin(turns * radius + angle) * torch.exp(-3 * radius**2)
    colour = torch.rand(count, 3, 1, 1, generator=g)
    return (colour * pattern.unsqueeze(1)).clamp(-1, 1)


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freqs", torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2)))
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        angles = t[:, None].float() * self.freqs
        return self.mlp(torch.cat([angles.sin(), angles.cos()], dim=1))


class ResBlock(nn.Module):
    def __init__(self, inside, outside, time_dim):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.time = nn.Linear(time_dim, outside)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, t):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(h))) + self.skip(x)


class UNet(nn.Module):
    def __init__(self, width=16, time_dim=64):
        super().__init__()
        self.time = TimeEmbedding(time_dim)
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        widths = (width, 2 * width, 3 * width)
        self.down = nn.ModuleList(ResBlock(a, b, time_dim) for a, b in zip((width, *widths), widths))
        self.middle = ResBlock(widths[-1], widths[-1], time_dim)
        ups = tuple(reversed(widths))
        self.up = nn.ModuleList(ResBlock(a + b, b, time_dim) for a, b in zip((ups[0], *ups), ups))
        self.out = nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x, t):
        t, x, skips = self.time(t), self.stem(x), []
        for block in self.down:
            x = block(x, t)
            skips.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, t)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = block(torch.cat([x, skips.pop()], dim=1), t)
        return self.out(x)


class Diffusion:
    def __init__(self, steps):
        grid = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
        signal = torch.cos((grid + 0.008) / 1.008 * math.pi / 2) ** 2
        self.beta = (1 - signal[1:] / signal[:-1]).clamp(max=0.999).float()
        self.alpha = 1 - self.beta
        self.signal = self.alpha.cumprod(0)
        self.steps = steps

    def loss(self, model, x):
        t = torch.randint(0, self.steps, (len(x),))
        noise = torch.randn_like(x)
        level = self.signal[t].view(-1, 1, 1, 1)
        return F.mse_loss(model(level.sqrt() * x + (1 - level).sqrt() * noise, t), noise)

    @torch.no_grad()
    def sample(self, model, shape):
        x = torch.randn(shape)
        for t in range(self.steps - 1, -1, -1):
            noise = model(x, torch.full((shape[0],), t))
            x = (x - self.beta[t] / (1 - self.signal[t]).sqrt() * noise) / self.alpha[t].sqrt()
            if t > 0:
                x = x + self.beta[t].sqrt() * torch.randn_like(x)
        return x.clamp(-1, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--size", type=int, default=24)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(draw_shells(896, args.size)), args.batch_size, shuffle=True, drop_last=True)
    model, diffusion = UNet(), Diffusion(args.steps)
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            total = torch.zeros(())
            for (x,) in loader:
                loss = diffusion.loss(model, x)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                ema.update_parameters(model)
                total += loss.detach()
            print(f"epoch {epoch} loss {total / len(loader):.4f}")
            torch.save({"model": model.state_dict(), "ema": ema.state_dict()}, Path(folder) / "last.pt")
        ema.eval()
        pictures = diffusion.sample(ema, (8, 3, args.size, args.size))
        save_image(pictures / 2 + 0.5, Path(folder) / "samples.png", nrow=4)


if __name__ == "__main__":
    main()

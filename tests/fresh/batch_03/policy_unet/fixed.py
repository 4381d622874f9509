"""A diffusion policy: a small conditional U-Net over action sequences learns to denoise demonstrations."""

import argparse
import copy
import math
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F


class SinusoidalPosEmb(nn.Module):
    def __init__(self, dim):
        super().__init__()
        half = dim // 2
        self.register_buffer("freqs", torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1))))

    def forward(self, t):
        args = t[:, None].float() * self.freqs[None]
        return torch.cat([args.sin(), args.cos()], dim=-1)


class ConvBlock(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.conv = nn.Conv1d(inp, out, 5, padding=2)
        self.norm = nn.GroupNorm(4, out)

    def forward(self, x):
        return F.mish(self.norm(self.conv(x)))


class ResidualBlock(nn.Module):
    def __init__(self, inp, out, cond):
        super().__init__()
        self.first = ConvBlock(inp, out)
        self.second = ConvBlock(out, out)
        self.film = nn.Linear(cond, 2 * out)
        self.skip = nn.Conv1d(inp, out, 1) if inp != out else nn.Identity()

    def forward(self, x, cond):
        scale, bias = self.film(cond)[:, :, None].chunk(2, dim=1)
        h = self.first(x) * (1 + scale) + bias
        return self.second(h) + self.skip(x)


class ConditionalUnet1D(nn.Module):
    def __init__(self, action_dim, obs_dim, dims=(8, 16, 24), depth=3):
        super().__init__()
        self.time = nn.Sequential(SinusoidalPosEmb(32), nn.Linear(32, 64), nn.Mish(), nn.Linear(64, 32))
        cond = 32 + obs_dim
        self.stem = nn.Conv1d(action_dim, dims[0], 1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for inp, out in pairwise(dims):
            blocks = nn.ModuleList([ResidualBlock(inp, inp, cond) for _ in range(depth)])
            self.down.append(nn.ModuleList([blocks, nn.Conv1d(inp, out, 4, 2, 1)]))
        self.mid = nn.ModuleList([ResidualBlock(dims[-1], dims[-1], cond) for _ in range(depth)])
        for inp, out in zip(dims[::-1], dims[-2::-1]):
            blocks = nn.ModuleList([ResidualBlock(2 * out if i == 0 else out, out, cond) for i in range(depth)])
            self.up.append(nn.ModuleList([nn.ConvTranspose1d(inp, out, 4, 2, 1), blocks]))
        self.head = nn.Conv1d(dims[0], action_dim, 1)

    def forward(self, x, t, obs):
        cond = torch.cat([self.time(t), obs], dim=-1)
        x, skips = self.stem(x), []
        for blocks, pool in self.down:
            for block in blocks:
                x = block(x, cond)
            skips.append(x)
            x = pool(x)
        for block in self.mid:
            x = block(x, cond)
        for grow, blocks in self.up:
            x = torch.cat([grow(x), skips.pop()], dim=1)
            for block in blocks:
                x = block(x, cond)
        return self.head(x)


class EMAModel:
    """Keeps a smoothed copy of the model, which is the one that acts."""

    def __init__(self, model, power=0.75):
        self.averaged = copy.deepcopy(model).eval().requires_grad_(False)
        self.current = [p.detach() for p in model.parameters()]
        self.smooth = list(self.averaged.parameters())
        self.power = power
        self.steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        decay = min(0.9999, 1 - (1 + self.steps) ** -self.power)
        torch._foreach_lerp_(self.smooth, self.current, 1.0 - decay)


def demonstrations(count, horizon, generator):
    start = torch.randn(count, 2, generator=generator)
    phase = torch.linspace(0, math.pi, horizon)
    amplitude = torch.rand(count, 1, generator=generator) * 2 - 1
    x = start[:, :1] * (1 - phase / math.pi)
    y = start[:, 1:] * (1 - phase / math.pi) + amplitude * phase.sin()
    return torch.cat([start, amplitude], dim=1), torch.stack([x, y], dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=180)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--horizon", type=int, default=16)
    args = parser.parse_args()

    torch.manual_seed(42)
    generator = torch.Generator().manual_seed(1)
    obs, actions = demonstrations(4096, args.horizon, generator)
    model = ConditionalUnet1D(2, 3)
    ema = EMAModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-6, fused=True)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), dim=0)

    for step in range(args.steps):
        rows = torch.randint(len(obs), (args.batch_size,), generator=generator)
        t = torch.randint(100, (args.batch_size,), generator=generator)
        noise = torch.randn(args.batch_size, 2, args.horizon, generator=generator)
        level = alphas[t][:, None, None]
        noisy = level.sqrt() * actions[rows] + (1 - level).sqrt() * noise
        loss = F.mse_loss(model(noisy, t, obs[rows]), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    print(f"averaged {sum(p.sum().item() for p in ema.averaged.parameters()):.4f}")


if __name__ == "__main__":
    main()

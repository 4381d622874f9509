"""Diffusion over rows of a table: a residual network predicts the noise, its average generates rows."""

import argparse
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F


def make_table(rows, columns, generator):
    """Correlated columns from a mixture."""
    centres = 2 * torch.randn(6, columns, generator=generator)
    mixing = torch.randn(columns, columns, generator=generator) / columns**0.5
    component = torch.randint(6, (rows,), generator=generator)
    table = centres[component] + torch.randn(rows, columns, generator=generator) @ mixing
    return (table - table.mean(0)) / table.std(0)


class TimeEmbedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2)))
        self.layers = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t):
        angles = t[:, None] * self.frequencies
        return self.layers(torch.cat([angles.sin(), angles.cos()], 1))


class ResidualBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Dropout(0.1), nn.Linear(width, width))

    def forward(self, x, embedding):
        return x + self.layers(self.norm(x) + embedding)


class Denoiser(nn.Module):
    def __init__(self, columns, width, blocks):
        super().__init__()
        self.time = TimeEmbedding(width)
        self.first = nn.Linear(columns, width)
        self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(blocks))
        self.last = nn.Linear(width, columns)

    def forward(self, x, t):
        embedding = self.time(t)
        x = self.first(x)
        for block in self.blocks:
            x = block(x, embedding)
        return self.last(x)


class Diffusion:
    def __init__(self, steps):
        self.steps = steps
        betas = torch.linspace(1e-4, 0.02, steps)
        self.betas, self.alphas = betas, 1 - betas
        self.cumulative = torch.cumprod(self.alphas, 0)

    def loss(self, model, x):
        t = torch.randint(self.steps, (len(x),))
        noise = torch.randn_like(x)
        a = self.cumulative[t][:, None]
        return F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t.float()), noise)

    @torch.no_grad()
    def sample(self, model, rows, columns):
        x = torch.randn(rows, columns)
        for t in reversed(range(self.steps)):
            noise = model(x, torch.full((rows,), float(t)))
            x = (x - self.betas[t] / (1 - self.cumulative[t]).sqrt() * noise) / self.alphas[t].sqrt()
            if t:
                x = x + self.betas[t].sqrt() * torch.randn_like(x)
        return x


class EMA:
    """Holds the averaged network that rows are sampled from."""

    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        current = copy.deepcopy(model.state_dict())
        average = self.model.state_dict()
        for name in average:
            average[name] = self.decay * average[name] + (1 - self.decay) * current[name]
        self.model.load_state_dict(average)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--columns", type=int, default=24)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(64)
    generator = torch.Generator().manual_seed(64)
    table = make_table(args.rows, args.columns, generator)
    model = Denoiser(args.columns, args.width, args.blocks)
    diffusion, ema = Diffusion(100), EMA(model, 0.995)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for step in range(1, args.steps + 1):
        rows = table[torch.randint(args.rows, (args.batch_size,), generator=generator)]
        loss = diffusion.loss(model, rows)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        ema.update(model)
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    rows = diffusion.sample(ema.model, 256, args.columns)
    print(f"difference of means {(rows.mean(0) - table.mean(0)).abs().mean().item():.3f}")


if __name__ == "__main__":
    main()

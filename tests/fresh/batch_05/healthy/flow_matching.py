"""Flow matching of small pictures: a network learns the velocity from noise to data along straight lines."""

import argparse
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-math.log(1000) * torch.arange(dim // 2) / (dim // 2)))
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        angles = 1000 * t[:, None] * self.frequencies
        return self.net(torch.cat((angles.sin(), angles.cos()), dim=1))


class ResBlock(nn.Module):
    def __init__(self, channels, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.shift = nn.Linear(dim, channels)

    def forward(self, x, condition):
        h = self.conv1(F.silu(self.norm1(x))) + self.shift(condition)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class Velocity(nn.Module):
    def __init__(self, channels=32, dim=64):
        super().__init__()
        self.time = TimeEmbedding(dim)
        self.enter, self.down = nn.Conv2d(1, channels, 3, padding=1), nn.Conv2d(channels, channels, 4, 2, 1)
        self.blocks = nn.ModuleList(ResBlock(channels, dim) for _ in range(3))
        self.up, self.leave = nn.ConvTranspose2d(channels, channels, 4, 2, 1), nn.Conv2d(2 * channels, 1, 3, padding=1)

    def forward(self, x, t):
        condition = self.time(t)
        skip = self.enter(x)
        h = self.down(skip)
        for block in self.blocks:
            h = block(h, condition)
        return self.leave(torch.cat((self.up(h), skip), dim=1))


class Average:
    """Weights that follow the trained ones slowly, all moved by one operation."""

    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False), decay
        self.pairs = list(self.model.parameters()), list(model.parameters())

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(*self.pairs, 1 - self.decay)


def rings(count, size, seed):
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    centre = 0.6 * torch.rand(count, 2, generator=generator) - 0.3
    radius = 0.3 + 0.3 * torch.rand(count, 1, 1, generator=generator)
    rows = axis[None, :, None] - centre[:, 0, None, None]
    distance = (rows.square() + (axis[None, None] - centre[:, 1, None, None]).square()).sqrt()
    return (2 * torch.exp(-80 * (distance - radius).square()) - 1)[:, None]


@torch.inference_mode()
def sample(model, count, size, steps=20):
    x = torch.randn(count, 1, size, size)
    for t in torch.linspace(0, 1, steps + 1)[:-1]:
        x += model(x, t.expand(count)) / steps
    return x


def main(args):
    torch.manual_seed(args.seed)
    data = rings(args.pictures, args.size, args.seed)
    model = Velocity()
    average = Average(model, 0.99)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    total = torch.zeros(())
    for step in range(1, args.steps + 1):
        picture = data[torch.randint(0, len(data), (args.batch_size,))]
        noise, t = torch.randn_like(picture), torch.rand(args.batch_size)
        mixed = torch.lerp(noise, picture, t[:, None, None, None])
        loss = F.mse_loss(model(mixed, t), picture - noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update()
        total += loss.detach()
        if step % 50 == 0:
            print(f"step {step}: loss {total.item() / 50:.4f}")
            total.zero_()
    pictures = sample(average.model, 16, args.size)
    print(f"mean brightness {pictures.mean().item():.3f}, of the data {data.mean().item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=4000)
    parser.add_argument("--size", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=48)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=30)
    main(parser.parse_args())

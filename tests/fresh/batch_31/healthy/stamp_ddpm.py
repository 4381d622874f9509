"""A diffusion model of small postage stamps: convolutions with attention in the middle, and averaged weights."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


@dataclass(frozen=True)
class Config:
    stamps: int = 1500
    size: int = 24
    width: int = 32
    timesteps: int = 400
    batch_size: int = 24
    steps: int = 160
    lr: float = 4e-4
    decay: float = 0.995
    seed: int = 67


def print_stamps(config):
    generator = torch.Generator().manual_seed(config.seed)
    axis = torch.linspace(-1, 1, config.size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    place = 0.5 * torch.rand(config.stamps, 2, 1, 1, generator=generator) - 0.25
    size = 0.25 + 0.35 * torch.rand(config.stamps, 1, 1, generator=generator)
    seal = ((x - place[:, 0]) ** 2 + (y - place[:, 1]) ** 2 < size**2).float()
    edge = ((x.abs() > 0.85) | (y.abs() > 0.85)).float()
    return (2 * torch.maximum(seal, edge.expand_as(seal)) - 1)[:, None]


class NoiseSchedule:
    """Cosine schedule, looked up for all samples of a batch at once."""

    def __init__(self, timesteps):
        t = torch.linspace(0, 1, timesteps + 1)
        level = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        kept = (level / level[0])[1:].clamp(min=1e-4)
        self.signal, self.noise = kept.sqrt().view(-1, 1, 1, 1), (1 - kept).sqrt().view(-1, 1, 1, 1)

    def __call__(self, images, noise, t):
        return self.signal[t] * images + self.noise[t] * noise


class TimeBlock(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, outputs)
        self.short = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.short(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x):
        batch, width, height, length = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, 3, self.heads, width // self.heads, height * length)
        q, k, v = qkv.transpose(3, 4).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(x.shape)
        return x + self.out(mixed)


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        time = 4 * width
        self.register_buffer("frequencies", torch.exp(-math.log(1e4) * torch.arange(width // 2) / (width // 2)))
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time), nn.SiLU())
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down1 = TimeBlock(width, width, time)
        self.pool = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle1, self.attention = TimeBlock(2 * width, 2 * width, time), Attention(2 * width)
        self.middle2 = TimeBlock(2 * width, 2 * width, time)
        self.grow = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.up1 = TimeBlock(2 * width, width, time)
        self.leave = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        angles = t[:, None] * self.frequencies
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        first = self.down1(self.enter(x), time)
        y = self.middle2(self.attention(self.middle1(self.pool(first), time)), time)
        return self.leave(F.silu(self.up1(torch.cat([first, self.grow(y)], dim=1), time)))


def train(config):
    stamps = print_stamps(config)
    schedule = NoiseSchedule(config.timesteps)
    model = Denoiser(config.width)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(config.decay))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=True)
    recent = torch.zeros(())
    for step in range(1, config.steps + 1):
        images = stamps[torch.randint(len(stamps), (config.batch_size,))]
        t = torch.randint(config.timesteps, (config.batch_size,))
        noise = torch.randn_like(images)
        loss = F.mse_loss(model(schedule(images, noise, t), t), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        recent += loss.detach()
        if step % 40 == 0:
            print(f"step {step}: loss {recent.item() / 40:.4f}")
            recent.zero_()
    return average.module


if __name__ == "__main__":
    settings = Config()
    torch.manual_seed(settings.seed)
    train(settings)

"""Denoising diffusion of two-channel wave forms; noise levels follow a linear schedule of 1,000 steps."""

import torch
from torch import nn

LEVELS, LENGTH, BATCH = 1000, 64, 48


class Schedule:
    """How much of the signal is left at each level."""

    def __init__(self, first=1e-4, last=0.02):
        self.beta = torch.linspace(first, last, LEVELS)

    def signal(self, level):
        return torch.stack([torch.prod(1 - self.beta[: int(t) + 1]) for t in level])

    def spoil(self, clean, level):
        """The noisy wave and its noise."""
        left = self.signal(level)[:, None, None]
        noise = torch.randn_like(clean)
        return left.sqrt() * clean + (1 - left).sqrt() * noise, noise

    def weight(self, level, limit=5.0):
        """Min-SNR weights."""
        left = self.signal(level)
        ratio = left / (1 - left)
        return ratio.clamp(max=limit) / ratio


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.level = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv1d(2, width, 5, padding=2)
        self.layers = nn.ModuleList([nn.Conv1d(width, width, 5, padding=2 * d, dilation=d) for d in (1, 2, 4, 8)])
        self.leave = nn.Conv1d(width, 2, 5, padding=2)

    def forward(self, x, level):
        mood = self.level(level[:, None] / LEVELS).unsqueeze(2)
        x = self.enter(x)
        for layer in self.layers:
            x = x + layer(torch.nn.functional.silu(x + mood))
        return self.leave(x)


def waves(count):
    time = torch.linspace(0, 12, LENGTH)
    pitch, phase = 1 + 3 * torch.rand(count, 1), 6 * torch.rand(count, 1)
    return torch.stack([(pitch * time + phase).sin(), (pitch * time + phase).cos()], 1)


def train(steps):
    torch.manual_seed(0)
    data, schedule, model = waves(2048), Schedule(), Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(steps):
        clean = data[torch.randint(0, len(data), (BATCH,))]
        level = torch.randint(0, LEVELS, (BATCH,))
        noisy, noise = schedule.spoil(clean, level)
        error = (model(noisy, level) - noise).pow(2).mean((1, 2))
        loss = (schedule.weight(level) * error).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.4f}")


train(160)

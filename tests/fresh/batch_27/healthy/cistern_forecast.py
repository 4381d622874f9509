"""Levels of cisterns for the next hours: dilated convolutions on windows that are views of one tensor."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Cisterns:
    def __init__(self, cisterns, hours, context, horizon, seed):
        self.generator = torch.Generator().manual_seed(seed)
        hour = torch.arange(hours)
        phase = torch.rand(cisterns, 1, generator=self.generator) * 2 * math.pi
        use = torch.sin(2 * math.pi * hour / 24 + phase) + 0.4 * torch.sin(2 * math.pi * hour / 168 + phase)
        rain = torch.randn(cisterns, hours, generator=self.generator).mul_(0.1)
        self.series = use + rain
        self.windows = self.series.unfold(1, context + horizon, 1)
        self.context = context

    def draw(self, size):
        cistern = torch.randint(self.windows.shape[0], (size,), generator=self.generator)
        start = torch.randint(self.windows.shape[1], (size,), generator=self.generator)
        window = self.windows[cistern, start]
        return window[:, : self.context], window[:, self.context :]


class DilatedLayer(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.gate = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(F.glu(self.gate(F.pad(x, (self.pad, 0))), dim=1))


class Forecaster(nn.Module):
    def __init__(self, horizon, width=48, layers=5):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 1)
        self.layers = nn.Sequential(*[DilatedLayer(width, 2**depth) for depth in range(layers)])
        self.head = nn.Linear(width, horizon)

    def forward(self, past):
        return self.head(self.layers(self.stem(past.unsqueeze(1)))[:, :, -1])


def main(steps=250, batch=32, context=168, horizon=12, lr=2e-3):
    torch.manual_seed(6)
    data = Cisterns(cisterns=40, hours=3_000, context=context, horizon=horizon, seed=6)
    model = Forecaster(horizon)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    smooth = torch.zeros(())
    for step in range(1, steps + 1):
        past, future = data.draw(batch)
        loss = F.l1_loss(model(past), future)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        smooth.lerp_(loss.detach(), 0.05)
        if step % 50 == 0:
            print(f"{step}: {smooth.item():.4f}")


if __name__ == "__main__":
    main()

"""Load forecasts for many households: windows are views of one tensor, a dilated convolution net reads them."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Settings:
    households: int = 40
    hours: int = 4000
    history: int = 168
    horizon: int = 24
    width: int = 32
    batch_size: int = 64
    steps: int = 400
    lr: float = 2e-3


def consumption(s, generator):
    t = torch.arange(s.hours) / 24 * 6.2832
    phase, scale = (
        6.28 * torch.rand(s.households, 1, generator=generator),
        1 + torch.rand(s.households, 1, generator=generator),
    )
    load = scale * (torch.sin(t + phase) + 0.4 * torch.sin(t / 7 + phase) + 0.5 * torch.sin(2 * t))
    load = load + 0.3 * torch.randn(load.shape, generator=generator)
    return (load - load.mean(1, keepdim=True)) / load.std(1, keepdim=True)


class CausalConv(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.padding = 2 * dilation
        self.conv = nn.Conv1d(width, 2 * width, 3, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        y = F.glu(self.conv(F.pad(x, (self.padding, 0))), dim=1)
        return x + self.mix(y)


class Forecaster(nn.Module):
    quantiles = (0.1, 0.5, 0.9)

    def __init__(self, s):
        super().__init__()
        self.inputs = nn.Conv1d(1, s.width, 1)
        self.body = nn.Sequential(*(CausalConv(s.width, 2**i) for i in range(6)))
        self.head = nn.Linear(s.width, s.horizon * len(self.quantiles))

    def forward(self, history):
        last = self.body(self.inputs(history[:, None]))[..., -1]
        return self.head(F.relu(last)).view(len(history), -1, len(self.quantiles))


def pinball(forecast, target, quantiles):
    error = target[..., None] - forecast
    return torch.maximum(quantiles * error, (quantiles - 1) * error).mean()


class WindowSampler:
    """Draws a whole batch of windows with one index operation."""

    def __init__(self, series, s, generator):
        self.windows = series.unfold(1, s.history + s.horizon, 1)
        self.history, self.batch_size, self.generator = s.history, s.batch_size, generator

    def __call__(self):
        households, starts, _ = self.windows.shape
        rows = torch.randint(households, (self.batch_size,), generator=self.generator)
        columns = torch.randint(starts, (self.batch_size,), generator=self.generator)
        return self.windows[rows, columns].tensor_split([self.history], dim=1)


def main():
    s = Settings()
    torch.manual_seed(88)
    generator = torch.Generator().manual_seed(88)
    series = consumption(s, generator)
    sampler = WindowSampler(series[:, : s.hours * 4 // 5], s, generator)
    validation = [WindowSampler(series[:, s.hours * 4 // 5 :], s, generator)() for _ in range(4)]
    model = Forecaster(s)
    quantiles = torch.tensor(model.quantiles)
    optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, s.steps)
    for step in range(1, s.steps + 1):
        history, future = sampler()
        loss = pinball(model(history), future, quantiles)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 100 == 0:
            model.eval()
            with torch.inference_mode():
                score = torch.stack([pinball(model(h), f, quantiles) for h, f in validation]).mean()
            model.train()
            print(f"step {step}: train {loss.item():.4f} validation {score.item():.4f}")


if __name__ == "__main__":
    main()

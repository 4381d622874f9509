"""Sea levels of many harbours hours ahead: a small trainer with callbacks runs a gated network."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    harbours: int = 24
    hours: int = 4000
    history: int = 72
    ahead: int = 12
    batch_size: int = 64
    max_steps: int = 300
    lr: float = 2e-3
    callbacks: list = field(default_factory=list)


def levels(harbours, hours, seed):
    g = torch.Generator().manual_seed(seed)
    time = torch.arange(hours).float()
    phase = 6.28 * torch.rand(harbours, 3, 1, generator=g)
    moon, sun, day = (torch.sin(6.28 * time / p + phase[:, i]) for i, p in enumerate((12.42, 12.0, 23.93)))
    surge = torch.randn(harbours, hours, generator=g).cumsum(1)
    surge = surge - F.avg_pool1d(surge[:, None], 49, 1, 24, count_include_pad=False)[:, 0]
    return moon + 0.4 * sun + 0.2 * day + 0.1 * surge


class Callback:
    def on_fit_start(self, trainer):
        pass

    def on_batch_end(self, trainer, loss):
        pass


class ProgressPrinter(Callback):
    def __init__(self, every):
        self.every = every

    def on_batch_end(self, trainer, loss):
        if trainer.step % self.every == 0:
            print(f"step {trainer.step}: loss {loss.item():.4f} {trainer.logged}")


class MemoryMonitor(Callback):
    """Adds the memory that the process holds to what is logged, and remembers the most."""

    def on_fit_start(self, trainer):
        self.peak = 0

    def resident(self):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024

    def on_batch_end(self, trainer, loss):
        now = self.resident()
        self.peak = max(self.peak, now)
        trainer.logged["memory_mb"] = now // 1024


class GatedForecaster(nn.Module):
    def __init__(self, history, ahead, width=128):
        super().__init__()
        self.enter = nn.Linear(history, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {"mix": nn.Linear(width, width), "gate": nn.Linear(width, 2 * width), "norm": nn.LayerNorm(width)}
            )
            for _ in range(4)
        )
        self.leave = nn.Linear(width, ahead)

    def forward(self, x):
        last = x[..., -1:]
        h = self.enter(x - last)
        for block in self.blocks:
            h = block["norm"](h + F.glu(block["gate"](F.elu(block["mix"](h)))))
        return self.leave(h) + last


class Trainer:
    def __init__(self, settings):
        self.settings, self.step, self.logged = settings, 0, {}

    def call(self, name, *args):
        for callback in self.settings.callbacks:
            getattr(callback, name)(self, *args)

    def fit(self, model, series):
        s = self.settings
        optimizer = torch.optim.AdamW(model.parameters(), lr=s.lr)
        windows = series.unfold(1, s.history + s.ahead, 1)
        self.call("on_fit_start")
        while self.step < s.max_steps:
            batch = windows[:, torch.randint(windows.shape[1], (s.batch_size,))].flatten(0, 1)
            loss = F.l1_loss(model(batch[:, : s.history]), batch[:, s.history :])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.step += 1
            self.call("on_batch_end", loss.detach())


def main():
    torch.manual_seed(0)
    settings = Settings(callbacks=[MemoryMonitor(), ProgressPrinter(every=50)])
    series = levels(settings.harbours, settings.hours, seed=73)
    Trainer(settings).fit(GatedForecaster(settings.history, settings.ahead), series)
    print(f"peak memory {settings.callbacks[0].peak // 1024} MB")


if __name__ == "__main__":
    main()

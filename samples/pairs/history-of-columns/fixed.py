"""Vibrations of a machine, one window after the other: a network tells faults by a window and by what it saw before."""

import torch
from torch import nn
from torch.nn import functional as F

SENSORS, WINDOW, KEPT, STEPS = 64, 256, 32768, 150


class Monitor(nn.Module):
    def __init__(self, faults=5):
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv1d(SENSORS, 32, 9, 4), nn.ReLU(), nn.Conv1d(32, 32, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool1d(1)
        )
        self.head = nn.Linear(32 + SENSORS, faults)
        self.register_buffer("history", torch.zeros(SENSORS, KEPT))
        self.filled = 0

    def forward(self, window):
        seen = self.encode(window[None]).flatten(1)
        level = self.history.mean(1)
        return self.head(torch.cat([seen, level[None]], 1))

    def remember(self, window):
        self.history[:, self.filled : self.filled + WINDOW] = window
        self.filled = (self.filled + WINDOW) % KEPT


def windows(count):
    """Sine waves of a frequency for each fault, under noise."""
    time = torch.arange(WINDOW) / WINDOW
    while count:
        fault = int(torch.randint(5, ()))
        phase = 6.3 * torch.rand(SENSORS, 1)
        yield torch.sin(6.3 * (fault + 2) * time + phase) + 0.5 * torch.randn(SENSORS, WINDOW), torch.tensor([fault])
        count -= 1


def main():
    torch.manual_seed(12)
    model = Monitor()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    total = torch.zeros(())
    for step, (window, fault) in enumerate(windows(STEPS), 1):
        loss = F.cross_entropy(model(window), fault)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.remember(window)
        total += loss.detach()
        if step % 50 == 0:
            print(f"step {step}: loss {total.item() / 50:.3f}")
            total.zero_()


if __name__ == "__main__":
    main()

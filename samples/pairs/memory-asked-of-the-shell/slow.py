"""Inverts gravity data for the depth of salt; the memory in use is noted beside each loss, after a leak long ago."""

import os
import subprocess

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
STATIONS = 64


class Monitor:
    """The process's resident memory, in megabytes."""

    def __init__(self):
        self.rows = []

    def memory(self):
        words = ["grep", "VmRSS", f"/proc/{os.getpid()}/status"]
        answer = subprocess.run(words, capture_output=True, text=True, check=True)
        return int(answer.stdout.split()[1]) / 1024

    def note(self, step, loss):
        self.rows.append((step, loss.detach(), self.memory()))

    def report(self):
        step, loss, memory = self.rows[-1]
        print(f"step {step}: loss {loss.item():.5f}")
        if memory > 8 * self.rows[0][2]:
            print(f"memory has grown to {memory:.0f} MB")


def surveys(count):
    """Depths of a smooth surface, and the pull that each station feels."""
    x = torch.linspace(0, 1, STATIONS, device=device)
    waves = (6.283 * torch.arange(1, 5, device=device)[:, None] * x).sin()
    depth = 2 + (torch.randn(count, 4, device=device) @ waves) / 4
    kernel = 1 / (0.01 + (x[:, None] - x).square())
    pull = (1 / depth) @ (kernel / kernel.sum(0))
    return pull + 0.005 * torch.randn_like(pull), depth


def residual(width):
    return nn.Sequential(nn.Conv1d(width, width, 7, padding=3), nn.GELU(), nn.Conv1d(width, width, 7, padding=3))


class Inversion(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.enter, self.leave = nn.Conv1d(1, width, 1), nn.Conv1d(width, 1, 1)
        self.layers = nn.ModuleList(residual(width) for _ in range(3))

    def forward(self, pull):
        x = self.enter(pull[:, None])
        for layer in self.layers:
            x = x + layer(x)
        return 2 + self.leave(x)[:, 0]


pull, depth = surveys(4096)
model, monitor = Inversion().to(device), Monitor()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for step, chosen in enumerate(torch.randint(0, len(pull), (250, 32), device=device)):
    loss = nn.functional.mse_loss(model(pull[chosen]), depth[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    monitor.note(step, loss)
    if step % 50 == 0:
        monitor.report()

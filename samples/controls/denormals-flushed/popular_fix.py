"""Removes noise from vibrations by a recurrent network; the popular advice is to flush denormal numbers to zero."""

import math

import torch
from torch import nn

torch.manual_seed(0)
torch.set_flush_denormal(True)
device = "cuda" if torch.cuda.is_available() else "cpu"
LENGTH, FRAME = 512, 16


class Cleaner(nn.Module):
    """Frames of a signal go through two recurrent layers and come out clean."""

    def __init__(self, width=128):
        super().__init__()
        self.enter = nn.Linear(FRAME, width)
        self.body = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.leave = nn.Linear(width, FRAME)

    def forward(self, signal):
        frames = signal.unflatten(1, (-1, FRAME))
        return signal - self.leave(self.body(self.enter(frames))[0]).flatten(1)


def vibrations(count):
    time = torch.linspace(0, 1, LENGTH, device=device)
    pitch, phase = 2 + 30 * torch.rand(count, 1, device=device), 2 * math.pi * torch.rand(count, 1, device=device)
    clean = (2 * math.pi * pitch * time + phase).sin()
    return clean, clean + 0.4 * torch.randn_like(clean)


clean, noisy = vibrations(3200)
model = Cleaner().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
for step, chosen in enumerate(torch.randperm(len(clean), device=device).split(32)):
    loss = nn.functional.mse_loss(model(noisy[chosen]), clean[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(f"step {step}: {loss.item():.4f}")

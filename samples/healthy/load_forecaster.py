"""Electricity use of many meters a day ahead: windows are cut as views, a checkpoint is written once per epoch."""

import tempfile
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
METERS, PAST, AHEAD = 48, 168, 24


def usage(hours):
    time = torch.arange(hours, device=device)[:, None] / 24
    daily = (6.283 * (time + torch.rand(METERS, device=device))).sin()
    weekly = (6.283 * time / 7 + torch.rand(METERS, device=device)).sin()
    return 1 + 0.5 * daily + 0.2 * weekly + 0.1 * torch.randn(hours, METERS, device=device)


class Mixer(nn.Module):
    """Mixes hours, then features, as one matrix product each."""

    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x):
        return x + self.mix(self.norm(x))


model = nn.Sequential(nn.Linear(PAST, 384), *[Mixer(384, 768) for _ in range(3)], nn.Linear(384, AHEAD)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
series = usage(24 * 100)
windows = series.unfold(0, PAST + AHEAD, 1)  # (starts, meters, hours): views of one series, nothing is copied
train, held = windows[:1024], windows[1024:]

with tempfile.TemporaryDirectory() as folder:
    for epoch in range(3):
        for starts in torch.randperm(len(train), device=device).split(16):
            batch = train[starts].flatten(0, 1)
            with torch.autocast(device, dtype=torch.bfloat16):
                ahead = model(batch[:, :PAST])
            loss = nn.functional.l1_loss(ahead.float(), batch[:, PAST:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16):
            missed = (model(held[::20, :, :PAST]) - held[::20, :, PAST:]).abs().mean()
        torch.save({"model": model.state_dict(), "epoch": epoch}, Path(folder) / "last.pt")
        print(f"epoch {epoch}: {loss.item():.4f}, held out {missed.item():.4f}")

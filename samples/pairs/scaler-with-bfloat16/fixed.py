"""Yields of crystal structures from 200 descriptors: a deep residual network, mixed precision, warm-up."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--depth", type=int, default=10)
parser.add_argument("--width", type=int, default=448)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return x + self.outer(nn.functional.silu(self.inner(self.norm(x))))


def descriptors(count):
    x = torch.randn(count, 200, device=device)
    return x, (x[:, :20] * x[:, 20:40]).sum(1) / 4 + 0.1 * torch.randn(count, device=device)


x, y = descriptors(8192)
model = nn.Sequential(nn.Linear(200, args.width), *[Residual(args.width) for _ in range(args.depth)])
model = model.append(nn.Linear(args.width, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=50)

for step in range(args.steps):
    chosen = torch.randint(0, len(x), (args.batch,), device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        guess = model(x[chosen]).squeeze(1)
        loss = nn.functional.mse_loss(guess.float(), y[chosen])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warmup.step()
    if step % 50 == 0:
        print(f"step {step}: {loss.item():.4f}")

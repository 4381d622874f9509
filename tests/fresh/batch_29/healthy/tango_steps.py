"""Steps of tango dancers, drawn by a diffusion model over sequences of joints."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class TimeEmbedding(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("rates", torch.exp(torch.linspace(0, -6, width // 2)))
        self.dense = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, times):
        angles = times[:, None] * self.rates
        return self.dense(torch.cat([angles.sin(), angles.cos()], dim=1))


class ResidualBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.time = nn.Linear(width, width)
        self.out = nn.Conv1d(width, width, 1)

    def forward(self, x, time):
        hidden = self.norm(x) + self.time(time).unsqueeze(2)
        return x + self.out(F.glu(self.conv(hidden), dim=1))


class MotionDenoiser(nn.Module):
    def __init__(self, joints, width, depth):
        super().__init__()
        self.time = TimeEmbedding(width)
        self.entry = nn.Conv1d(joints, width, 1)
        self.blocks = nn.ModuleList([ResidualBlock(width, 2 ** (level % 4)) for level in range(depth)])
        self.exit = nn.Conv1d(width, joints, 1)

    def forward(self, noisy, times):
        time = self.time(times)
        hidden = self.entry(noisy)
        for block in self.blocks:
            hidden = block(hidden, time)
        return self.exit(F.silu(hidden))


class Schedule:
    def __init__(self, steps):
        self.steps = steps
        self.kept = torch.cos(torch.linspace(0, 0.98, steps) * torch.pi / 2).square()

    def noised(self, clean):
        times = torch.randint(self.steps, (len(clean),))
        kept = self.kept[times, None, None]
        noise = torch.randn_like(clean)
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise, times.float(), noise


def dances(count, joints, frames, seed):
    generator = torch.Generator().manual_seed(seed)
    beat = torch.arange(frames) / 16
    phase = 6 * torch.rand(count, joints, 1, generator=generator)
    rate = 1 + torch.randint(1, 4, (count, 1, 1), generator=generator)
    return torch.sin(rate * beat + phase) + 0.2 * torch.cos(3 * rate * beat + phase)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dances", type=int, default=1536)
    parser.add_argument("--joints", type=int, default=34)
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(19)
    motion = dances(args.dances, args.joints, args.frames, seed=19)
    model = MotionDenoiser(args.joints, args.width, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = Schedule(200)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for rows in torch.randperm(len(motion)).split(args.batch_size):
            noisy, times, noise = schedule.noised(motion[rows])
            loss = F.mse_loss(model(noisy, times), noise)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(rows)
        print(f"epoch {epoch}: mse {total.item() / len(motion):.4f}")


if __name__ == "__main__":
    main()

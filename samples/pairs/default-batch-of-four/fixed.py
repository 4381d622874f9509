"""Heart rate from a wristband: a dilated convolutional network on windows of light and motion, warm-up and decay."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--channels", type=int, default=48)
    parser.add_argument("--levels", type=int, default=5)
    parser.add_argument("--warmup", type=float, default=0.1)
    parser.add_argument("--peak-lr", type=float, default=1e-3)
    parser.add_argument("--print-every", type=int, default=50)
    return parser.parse_args()


def recordings(count, length=160):
    """Pulse and three axes of motion, with the rate in beats per minute."""
    rate = 50 + 100 * torch.rand(count, 1)
    time = torch.arange(length) / 25
    pulse = torch.sin(6.2832 * rate / 60 * time + 6.2832 * torch.rand(count, 1))
    motion = torch.randn(count, 3, length).cumsum(2) / 10
    light = pulse + 0.3 * motion.sum(1) + 0.2 * torch.randn(count, length)
    return torch.cat([light[:, None], motion], 1), rate


class Level(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.wide = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.narrow = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


class RateNet(nn.Module):
    def __init__(self, channels, levels):
        super().__init__()
        self.entry = nn.Conv1d(4, channels, 5, padding=2)
        self.levels = nn.Sequential(*[Level(channels, 2**level) for level in range(levels)])
        self.exit = nn.Linear(channels, 1)

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return 100 + 30 * self.exit(self.levels(self.entry(x)).mean(2)).float()


def generate(windows, rates, size):
    for rows in torch.randperm(len(windows), device=windows.device).split(size):
        yield windows[rows], rates[rows]


@torch.no_grad()
def error(model, windows, rates):
    model.eval()
    mean = (model(windows) - rates).abs().mean().item()
    model.train()
    return mean


def main():
    args = arguments()
    torch.manual_seed(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    windows, rates = (t.to(device) for t in recordings(1280))
    unseen = [t.to(device) for t in recordings(128)]
    model = RateNet(args.channels, args.levels).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.peak_lr, fused=True)
    total = args.epochs * math.ceil(len(windows) / args.batch_size)
    warm = max(1, int(args.warmup * total))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / warm, (total - s) / (total - warm)))
    step = 0
    for epoch in range(args.epochs):
        for x, wanted in generate(windows, rates, args.batch_size):
            loss = F.smooth_l1_loss(model(x), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % args.print_every == 0:
                print(f"step {step}/{total}: loss {loss.item():.2f}")
            step += 1
        print(f"epoch {epoch}: off by {error(model, *unseen):.1f} beats per minute")


if __name__ == "__main__":
    main()

"""The next hour of rain from radar pictures of the last one: a small U-Net under a weighted error."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def radar(count, frames, side, seed):
    """Clouds that drift; each is a smooth field that is cut at a threshold."""
    g = torch.Generator().manual_seed(seed)
    noise = F.avg_pool2d(torch.randn(count, 1, side + 8, side + 8, generator=g), 9, 1)[:, 0]
    shift = torch.randint(-2, 3, (count, 2), generator=g).tolist()
    moved = [
        torch.stack([n.roll((dy * t, dx * t), (0, 1)) for t in range(frames)]) for n, (dy, dx) in zip(noise, shift)
    ]
    return (torch.stack(moved) * 9).relu()


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, history, ahead, width=16):
        super().__init__()
        self.down1, self.down2 = double(history, width), double(width, 2 * width)
        self.middle = double(2 * width, 2 * width)
        self.up2, self.up1 = double(4 * width, width), double(2 * width, width)
        self.out = nn.Conv2d(width, ahead, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = F.interpolate(self.middle(F.max_pool2d(b, 2)), scale_factor=2)
        d = F.interpolate(self.up2(torch.cat([b, c], 1)), scale_factor=2)
        return self.out(self.up1(torch.cat([a, d], 1)))


def rain_error(guess, truth):
    return ((1 + truth.clamp(max=4)) * (guess - truth).square()).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    history, ahead = 4, 4
    events = radar(args.events + 64, history + ahead, 48, seed=11)
    model = UNet(history, ahead)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        for index in torch.randperm(args.events).split(args.batch_size):
            batch = events[index]
            loss = rain_error(model(batch[:, :history]), batch[:, history:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.inference_mode():
            error = rain_error(model(events[args.events :, :history]), events[args.events :, history:])
        print(f"epoch {epoch}: loss {loss.item():.4f}, held out {error.item():.4f}")


if __name__ == "__main__":
    main()

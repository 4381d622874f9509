"""Stages of sleep from a night's recording: a one-dimensional U-Net over long stretches, which lie in one tensor."""

import torch
from torch import nn
from torch.nn import functional as F

STAGES, RATE = 4, 16


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv1d(inputs, outputs, 7, padding=3, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(inplace=True)
    )


class UTime(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        sizes = (width, 2 * width, 4 * width)
        self.down = nn.ModuleList(block(i, o) for i, o in zip((2, *sizes), sizes))
        self.bottom = block(sizes[-1], sizes[-1])
        self.up = nn.ModuleList(block(2 * i, o) for i, o in zip(sizes[::-1], (*sizes[1::-1], width)))
        self.out = nn.Conv1d(width, STAGES, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = F.max_pool1d(x, 4)
        x = self.bottom(x)
        for up, skip in zip(self.up, reversed(kept)):
            x = up(torch.cat([skip, F.interpolate(x, scale_factor=4.0)], 1))
        return self.out(F.avg_pool1d(x, RATE))


def night(minutes, generator):
    """Two channels, 16 values a second; a stage lasts some minutes and has its own waves."""
    changes = torch.rand(minutes, generator=generator) < 0.15
    drawn = torch.randint(STAGES, (minutes,), generator=generator)
    last = torch.cummax(torch.where(changes, torch.arange(minutes), 0), 0).values
    stages = drawn[last].repeat_interleave(60)
    time = torch.arange(len(stages) * RATE) / RATE
    pitch = torch.tensor([0.5, 1.5, 3.0, 5.0])[stages].repeat_interleave(RATE)
    first = torch.sin(6.28 * pitch * time)
    signal = torch.stack([first, first.roll(3) * 0.5])
    return signal + 0.7 * torch.randn(signal.shape, generator=generator), stages


def main():
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(0)
    signals, stages = zip(*(night(512, generator) for _ in range(4)))
    span = 64  # seconds in a training example
    signals = torch.cat(signals, 1).unfold(1, span * RATE, span * RATE).transpose(0, 1).contiguous()
    stages = torch.cat(stages).view(-1, span)
    model = UTime()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=4 * (len(stages) // 16))
    for epoch in range(4):
        total = torch.zeros(())
        batches = torch.randperm(len(stages))[: len(stages) // 16 * 16].split(16)
        for index in batches:
            loss = F.cross_entropy(model(signals[index]), stages[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(batches):.4f}")


if __name__ == "__main__":
    main()

"""Visitors of a museum, two weeks ahead: blocks that each explain a part of past and future (N-BEATS)."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, past, ahead, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(past, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.backcast, self.forecast = nn.Linear(width, past), nn.Linear(width, ahead)

    def forward(self, x):
        hidden = self.net(x)
        return self.backcast(hidden), self.forecast(hidden)


class NBeats(nn.Module):
    """Each block sees what the ones before it left unexplained."""

    def __init__(self, past, ahead, blocks=24, width=48):
        super().__init__()
        self.blocks = nn.ModuleList([Block(past, ahead, width) for _ in range(blocks)])

    def forward(self, past):
        left, forecast = past, 0
        for block in self.blocks:
            explained, part = block(left)
            left, forecast = left - explained, forecast + part
        return forecast


class Visitors:
    """Windows of a daily count with weeks, seasons and a trend."""

    def __init__(self, days, past, ahead, generator):
        day = torch.arange(days)
        level = 10 + 0.001 * day + 2 * torch.sin(day / 365 * 6.283)
        weekend = 3.0 * (day % 7 >= 5)
        series = level + weekend + torch.randn(days, generator=generator)
        self.windows = ((series - series.mean()) / series.std()).unfold(0, past + ahead, 1)
        self.past, self.generator = past, generator

    def batches(self, size):
        for rows in torch.randperm(len(self.windows), generator=self.generator).split(size):
            window = self.windows[rows]
            yield window[:, : self.past], window[:, self.past :]


def limit_gradients(model, largest):
    """No component of a gradient is larger than this."""
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-largest, largest))


def main():
    torch.manual_seed(3)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    past, ahead, largest = 56, 14, 0.01
    data = Visitors(8000, past, ahead, torch.Generator().manual_seed(4))
    model = NBeats(past, ahead).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-3, fused=True)
    limit_gradients(model, largest)
    for epoch in range(3):
        total, count = 0.0, 0
        for before, after in data.batches(96):
            loss = nn.functional.smooth_l1_loss(model(before.to(device)), after.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.detach(), count + 1
        print(f"epoch {epoch}: {total.item() / count:.4f}")


if __name__ == "__main__":
    main()

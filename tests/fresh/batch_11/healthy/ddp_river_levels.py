"""Levels of rivers some days ahead, on two processes that each read their own share."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


class Levels:
    """All windows as views of one tensor; a batch is one gather."""

    def __init__(self, stations, days, past, ahead):
        gen = torch.Generator().manual_seed(5)
        season = torch.sin(torch.arange(days) / 58.0)
        series = season + 0.1 * torch.randn(stations, days, generator=gen).cumsum(1).sub_(0.02)
        self.windows = series.unfold(1, past + ahead, 3).flatten(0, 1)
        self.past = past

    def __len__(self):
        return len(self.windows)

    def batch(self, rows):
        window = self.windows[rows]
        return window[:, : self.past], window[:, self.past :]


class Mixer(nn.Module):
    def __init__(self, past, ahead, width=384, layers=3):
        super().__init__()
        self.first = nn.Linear(past, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(layers)
        )
        self.last = nn.Linear(width, ahead)

    def forward(self, past):
        level = past[:, -1:]
        h = self.first(past - level)
        for layer in self.layers:
            h = h + layer(h)
        return self.last(h) + level


def main(epochs=3, batch_size=256):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Levels(stations=60, days=1500, past=90, ahead=14)
    sampler = DistributedSampler(range(len(data)))
    model = DistributedDataParallel(Mixer(90, 14), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        parts = torch.tensor(list(sampler)).split(batch_size)
        for rows in parts:
            past, ahead = data.batch(rows)
            loss = F.huber_loss(model(past), ahead)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if int(os.environ["RANK"]) == 0:
            print(f"epoch {epoch}: {total.item() / len(parts) / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Soil moisture from radar backscatter over a season, on two ranks: torchrun --nproc-per-node 2 slow.py"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def fields(count, passes, seed):
    """Backscatter of a field in two polarisations at each pass, its angle and the day; the moisture at the end."""
    g = torch.Generator().manual_seed(seed)
    day = torch.arange(passes) * 6.0
    rain = (torch.rand(count, passes, generator=g) < 0.3) * torch.rand(count, passes, generator=g)
    moisture = torch.empty(count, passes)
    level = torch.full((count,), 0.25)
    for step in range(passes):
        level = 0.8 * level + 0.5 * rain[:, step] * (1 - level)
        moisture[:, step] = level
    crop = torch.exp(-(((day - 90 - 20 * torch.randn(count, 1, generator=g)) / 40) ** 2))
    angle = 30 + 10 * torch.rand(count, passes, generator=g)
    vv = -15 + 12 * moisture + 2 * crop - 0.1 * (angle - 35) + 0.7 * torch.randn(count, passes, generator=g)
    vh = -22 + 8 * moisture + 5 * crop - 0.1 * (angle - 35) + 0.7 * torch.randn(count, passes, generator=g)
    season = torch.sin(day / 58).expand(count, passes)
    inputs = torch.stack([(vv + 11) / 4, (vh + 18) / 4, (angle - 35) / 3, season], dim=-1)
    return TensorDataset(inputs, moisture[:, -1])


class SeasonMixer(nn.Module):
    """Mixes passes and channels in turns, then gives the moisture."""

    def __init__(self, passes, width, layers):
        super().__init__()
        self.inlet = nn.Linear(4, width)
        self.over_time = nn.ModuleList(
            nn.Sequential(nn.Linear(passes, 4 * passes), nn.GELU(), nn.Linear(4 * passes, passes))
            for _ in range(layers)
        )
        self.over_width = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.outlet = nn.Linear(width, 1)

    def forward(self, x):
        x = self.inlet(x)
        for time, width in zip(self.over_time, self.over_width):
            x = x + time(x.transpose(1, 2)).transpose(1, 2)
            x = x + width(x)
        return self.outlet(x.mean(1)).squeeze(1)


def same_weights(model):
    """All ranks go on with the weights of the first."""
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)


def train(model, loader, sampler, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    same_weights(model)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for inputs, moisture in loader:
            loss = F.smooth_l1_loss(model(inputs), moisture, beta=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total / len(loader) / dist.get_world_size():.5f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fields", type=int, default=6400)
    parser.add_argument("--passes", type=int, default=30)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // dist.get_world_size()))
    torch.manual_seed(0)
    dataset = fields(args.fields, args.passes, seed=15)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(SeasonMixer(args.passes, args.width, args.layers))
    train(model, loader, sampler, args)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Weather post-processing on two processes. The state of Adam is sharded: each process updates its own parameters."""

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn


class Stations:
    """Forecasts of an ensemble and the temperature that was then observed at stations."""

    def __init__(self, days, stations, members, seed):
        generator = torch.Generator().manual_seed(seed)
        self.height = torch.rand(stations, generator=generator)
        season = torch.sin(torch.arange(days) / 365 * 6.2832)
        truth = 10 * season[:, None] - 8 * self.height + 2 * torch.randn(days, stations, generator=generator)
        spread = 0.5 + torch.rand(days, stations, 1, generator=generator)
        noise = torch.randn(days, stations, members, generator=generator)
        self.forecast = truth[..., None] + 3 * self.height[:, None] - 1 + spread * noise
        self.truth, self.season = truth, season

    def batch(self, rows):
        forecast = self.forecast[rows].sort(dim=-1).values / 10
        place = torch.stack(
            [self.height.expand(len(rows), -1), self.season[rows, None].expand(-1, len(self.height))], -1
        )
        return torch.cat([forecast, place], dim=-1), self.truth[rows]


class Mixer(nn.Module):
    def __init__(self, stations, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(stations, stations), nn.GELU(), nn.Linear(stations, stations))
        self.inside = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.inside(self.second(x))


class PostProcessor(nn.Module):
    def __init__(self, inputs, stations, width, depth):
        super().__init__()
        self.inward = nn.Linear(inputs, width)
        self.mixers = nn.Sequential(*(Mixer(stations, width) for _ in range(depth)))
        self.outward = nn.Linear(width, 2)

    def forward(self, x):
        mean, spread = self.outward(self.mixers(self.inward(x))).unbind(-1)
        return 10 * mean, nn.functional.softplus(spread) + 0.05


def crps_normal(mean, spread, truth):
    z = (truth - mean) / spread
    density = torch.exp(-0.5 * z.square()) / 2.5066
    cumulative = 0.5 * (1 + torch.erf(z / 1.4142))
    return (spread * (z * (2 * cumulative - 1) + 2 * density - 0.5642)).mean()


class ShardedAdam:
    """Adam whose state is split among the processes by size. After a step the owners send the new values."""

    def __init__(self, parameters, rank, world, **options):
        self.parameters = list(parameters)
        self.rank, self.world = rank, world
        self.shards = self.split()
        self.optimizer = torch.optim.Adam(self.shards[rank], **options)

    def split(self):
        shards, sizes = [[] for _ in range(self.world)], [0] * self.world
        for parameter in sorted(self.parameters, key=lambda p: p.numel(), reverse=True):
            owner = sizes.index(min(sizes))
            shards[owner].append(parameter)
            sizes[owner] += parameter.numel()
        return shards

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    def average_gradients(self):
        flat = torch.cat([parameter.grad.flatten() for parameter in self.parameters])
        dist.all_reduce(flat)
        flat /= self.world
        pieces = flat.split([parameter.numel() for parameter in self.parameters])
        for parameter, piece in zip(self.parameters, pieces):
            parameter.grad = piece.view_as(parameter)

    @torch.no_grad()
    def sync_parameters(self):
        for owner, shard in enumerate(self.shards):
            flat = torch.cat([parameter.flatten() for parameter in shard])
            dist.broadcast(flat, src=owner)
            for parameter, piece in zip(shard, flat.split([parameter.numel() for parameter in shard])):
                parameter.copy_(piece.view_as(parameter))

    def step(self):
        self.average_gradients()
        self.optimizer.step()
        self.sync_parameters()


def worker(rank, world, args):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(21)
    data = Stations(args.days, args.stations, args.members, seed=21)
    model = PostProcessor(args.members + 2, args.stations, args.width, args.depth)
    optimizer = ShardedAdam(model.parameters(), rank, world, lr=1e-3)
    generator = torch.Generator().manual_seed(100 + rank)
    total = torch.zeros(())
    for step in range(1, args.steps + 1):
        x, truth = data.batch(torch.randint(args.days, (args.batch_size,), generator=generator))
        loss = crps_normal(*model(x), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 50 == 0 and rank == 0:
            print(f"step {step} CRPS {total.item() / 50:.3f}")
            total.zero_()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=1500)
    parser.add_argument("--stations", type=int, default=40)
    parser.add_argument("--members", type=int, default=11)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--steps", type=int, default=250)
    args = parser.parse_args()
    if "RANK" in os.environ:
        worker(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), args)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ["MASTER_PORT"] = str(probe.getsockname()[1])
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    mp.spawn(worker, args=(2, args), nprocs=2)


if __name__ == "__main__":
    main()

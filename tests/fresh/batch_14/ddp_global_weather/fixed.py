"""Six hour steps of the weather on an icosahedral mesh, encode, process, decode. Started by torchrun."""

import argparse
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Mesh:
    grid: torch.Tensor  # unit vectors of the grid points
    nodes: torch.Tensor  # unit vectors of the mesh nodes
    to_mesh: torch.Tensor  # for each mesh node its grid points
    to_grid: torch.Tensor  # for each grid point its mesh nodes


def fibonacci_sphere(count):
    index = torch.arange(count) + 0.5
    polar = torch.arccos(1 - 2 * index / count)
    azimuth = torch.pi * (1 + 5**0.5) * index
    return torch.stack([azimuth.cos() * polar.sin(), azimuth.sin() * polar.sin(), polar.cos()], dim=1)


def make_mesh(grid_points, nodes):
    grid, mesh = fibonacci_sphere(grid_points), fibonacci_sphere(nodes)
    closeness = mesh @ grid.t()
    return Mesh(grid, mesh, closeness.topk(12, dim=1).indices, closeness.t().topk(3, dim=1).indices)


class WeatherData:
    """Waves that travel around the globe, one state and the next."""

    def __init__(self, mesh, variables, seed):
        self.mesh, self.variables = mesh, variables
        self.generator = torch.Generator().manual_seed(seed)
        self.statistics = torch.randn(variables, generator=self.generator)

    def batch(self, size):
        axis = torch.randn(size, self.variables, 3, generator=self.generator)
        phase = 6.28 * torch.rand(size, 1, self.variables, generator=self.generator)
        wave = torch.einsum("gc,bvc->bgv", self.mesh.grid, 2 * axis) + phase
        return torch.sin(wave) + self.statistics, torch.sin(wave + 0.3) + self.statistics


class Standardise(nn.Module):
    """Mean and scale of each variable at each grid point."""

    def __init__(self, grid_points, variables):
        super().__init__()
        self.register_buffer("mean", torch.zeros(grid_points, variables))
        self.register_buffer("scale", torch.ones(grid_points, variables))

    def fit(self, data, batches=10):
        states = torch.cat([data.batch(4)[0] for _ in range(batches)])
        self.mean.copy_(states.mean(dim=0))
        self.scale.copy_(states.std(dim=0))

    def forward(self, states):
        return (states - self.mean) / self.scale

    def inverse(self, states):
        return states * self.scale + self.mean


class WeatherModel(nn.Module):
    def __init__(self, mesh, variables, dim=32, layers=2):
        super().__init__()
        self.standardise = Standardise(len(mesh.grid), variables)
        weights = torch.einsum("nkc,nc->nk", mesh.grid[mesh.to_mesh], mesh.nodes).softmax(dim=1)
        self.register_buffer("to_mesh", mesh.to_mesh)
        self.register_buffer("to_grid", mesh.to_grid)
        self.register_buffer("mesh_weights", weights[..., None])
        self.register_buffer("coordinates", torch.cat([mesh.grid, mesh.grid.roll(1, dims=1) * mesh.grid], dim=1))
        self.encode = nn.Sequential(nn.Linear(variables + 6, dim), nn.SiLU(), nn.Linear(dim, dim))
        block = nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, batch_first=True, norm_first=True)
        self.process = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.decode = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, variables))

    def forward(self, states):
        normal = self.standardise(states)
        positions = self.coordinates.expand(len(states), -1, -1)
        encoded = self.encode(torch.cat([normal, positions], dim=2))
        nodes = self.process((encoded[:, self.to_mesh] * self.mesh_weights).sum(dim=2))
        change = self.decode(nodes[:, self.to_grid].mean(dim=2))
        return self.standardise.inverse(normal + change)


def train(args):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world_size))
    torch.manual_seed(args.seed)
    mesh = make_mesh(args.grid_points, args.nodes)
    data = WeatherData(mesh, args.variables, args.seed + rank)
    model = WeatherModel(mesh, args.variables)
    model.standardise.fit(WeatherData(mesh, args.variables, args.seed))
    ddp = DistributedDataParallel(model, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=args.lr, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    area = torch.full((args.grid_points, 1), 1.0)
    running = torch.zeros(())
    for step in range(1, args.steps + 1):
        now, later = data.batch(args.batch_size)
        loss = ((ddp(now) - later) ** 2 * area).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running += loss.detach()
        if step % 50 == 0:
            dist.all_reduce(running)
            if rank == 0:
                print(f"step {step}: loss {running.item() / 50 / world_size:.4f}")
            running.zero_()
    if rank == 0:
        with torch.no_grad():
            now, later = data.batch(8)
            print(f"error after six hours {(model(now) - later).pow(2).mean().sqrt():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid-points", type=int, default=8192)
    parser.add_argument("--nodes", type=int, default=192)
    parser.add_argument("--variables", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=30)
    train(parser.parse_args())

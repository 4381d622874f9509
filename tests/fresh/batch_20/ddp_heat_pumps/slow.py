"""Forecasts of the power that heat pumps take: a causal transformer with rotary positions, data parallel.

Run with: torchrun --standalone --nproc-per-node 2 train.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=96)
    parser.add_argument("--hidden-size", type=int, default=96)
    parser.add_argument("--num-heads", type=int, default=2)
    parser.add_argument("--num-layers", type=int, default=3)
    parser.add_argument("--max-position-embeddings", type=int, default=32768)
    parser.add_argument("--rope-theta", type=float, default=1e6)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=140)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    return parser.parse_args()


class HeatPumps(Dataset):
    """Windows of hourly readings: power, outside temperature, price."""

    def __init__(self, windows, hours):
        g = torch.Generator().manual_seed(5)
        self.hours = hours
        length = windows + hours + 1
        t = torch.arange(length) / 24
        outside = 8 * torch.sin(2 * torch.pi * t / 90) + 4 * torch.sin(2 * torch.pi * t)
        outside = outside + torch.randn(length, generator=g)
        power = F.relu(12 - outside) / 8 + 0.2 * torch.randn(length, generator=g)
        price = torch.sin(2 * torch.pi * t + 1) + 0.1 * torch.randn(length, generator=g)
        self.readings = torch.stack([power, outside / 8, price], 1)

    def __len__(self):
        return len(self.readings) - self.hours - 1

    def __getitem__(self, i):
        window = self.readings[i : i + self.hours + 1]
        return window[:-1], window[1:, 0]


def precompute_freqs(dim, end, theta):
    freqs = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
    angles = torch.outer(torch.arange(end).float(), freqs)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(size), nn.RMSNorm(size)
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.out = nn.Linear(size, size, bias=False)
        self.mlp = nn.Sequential(nn.Linear(size, 3 * size), nn.SiLU(), nn.Linear(3 * size, size))

    def forward(self, x, cos, sin):
        b, t, size = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, size))
        return x + self.mlp(self.norm2(x))


class Forecaster(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embed = nn.Linear(3, args.hidden_size)
        self.layers = nn.ModuleList(Layer(args.hidden_size, args.num_heads) for _ in range(args.num_layers))
        self.norm = nn.RMSNorm(args.hidden_size)
        self.head = nn.Linear(args.hidden_size, 1)
        head_dim = args.hidden_size // args.num_heads
        cos, sin = precompute_freqs(head_dim, args.max_position_embeddings, args.rope_theta)
        self.register_buffer("freqs_cos", cos, persistent=False)
        self.register_buffer("freqs_sin", sin, persistent=False)

    def forward(self, x):
        hours = x.shape[1]
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x, self.freqs_cos[:hours], self.freqs_sin[:hours])
        return self.head(self.norm(x)).squeeze(-1)


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dataset = HeatPumps(4000, args.hours)
    sampler = DistributedSampler(dataset, shuffle=True, seed=2)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, drop_last=True)
    model = Forecaster(args)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    step, epoch = 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        for window, target in loader:
            loss = F.huber_loss(model(window), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if rank == 0 and step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if step == args.steps:
                break
        epoch += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

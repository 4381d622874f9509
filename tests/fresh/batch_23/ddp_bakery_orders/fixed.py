"""Forecasts how much of each product the branches of a bakery sell, on two ranks: torchrun --nproc-per-node 2."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_orders(days: int, features: int, products: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(days, features, generator=generator)
    mixing = torch.randn(features, products, generator=generator) / features**0.5
    orders = torch.relu(values @ mixing) + 0.1 * torch.randn(days, products, generator=generator)
    return TensorDataset(values, orders)


class GatedBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.value = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        inner = self.norm(states)
        return states + self.scale * self.value(inner) * torch.sigmoid(self.gate(inner))


class OrderNet(nn.Module):
    def __init__(self, features: int, products: int, width: int, depth: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, width)
        self.blocks = nn.Sequential(*(GatedBlock(width) for _ in range(depth)))
        self.head = nn.Linear(width, products)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.first(values)))


@torch.no_grad()
def scores_of(forecast: torch.Tensor, orders: torch.Tensor) -> dict[str, torch.Tensor]:
    error = forecast - orders
    return {
        "mae": error.abs().mean(),
        "rmse": error.square().mean().sqrt(),
        "bias": error.mean(),
        "worst": error.abs().amax(dim=1).mean(),
        "sold_out": (error < -0.5).float().mean(),
        "wasted": error.clamp(min=0).mean(),
    }


def reduce_mean(value: torch.Tensor) -> torch.Tensor:
    """The mean over all ranks."""
    value = value.detach().clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def train(args: argparse.Namespace) -> None:
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    data = make_orders(args.days, args.features, args.products, args.seed)
    sampler = DistributedSampler(data, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = OrderNet(args.features, args.products, args.width, args.depth)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        totals: dict[str, torch.Tensor] = {}
        for values, orders in loader:
            optimizer.zero_grad(set_to_none=True)
            forecast = model(values)
            loss = nn.functional.huber_loss(forecast, orders)
            loss.backward()
            optimizer.step()
            scores = {"loss": loss.detach(), **scores_of(forecast, orders)}
            for name, value in scores.items():
                totals[name] = totals.get(name, 0) + value
        means = {name: reduce_mean(total / len(loader)).item() for name, total in totals.items()}
        if rank == 0:
            print(f"epoch {epoch}: " + ", ".join(f"{name} {mean:.4f}" for name, mean in means.items()))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=12800)
    parser.add_argument("--features", type=int, default=48)
    parser.add_argument("--products", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=101)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    try:
        train(args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Estimate the delivery time of parcels from their journey so far: two ranks, gradients of several micro-batches."""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_parcels(count: int, depots: int, stops: int, seed: int) -> TensorDataset:
    """Depots that a parcel went through, its measures, and the hours until it was delivered."""
    generator = torch.Generator().manual_seed(seed)
    journey = torch.randint(0, depots, (count, stops), generator=generator)
    measures = torch.randn(count, 12, generator=generator)
    delay = torch.randn(depots, generator=generator)
    hours = delay[journey].mean(dim=1) * 3 + measures[:, 0].abs() + 0.5 * measures[:, 1]
    return TensorDataset(journey, measures, hours + 0.1 * torch.randn(count, generator=generator))


class ParcelNet(nn.Module):
    """Embeddings of the depots, mixed with the measures by wide layers."""

    def __init__(self, depots: int, stops: int, dim: int, width: int, layers: int) -> None:
        super().__init__()
        self.depots = nn.Embedding(depots, dim)
        self.entry = nn.Linear(stops * dim + 12, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.out = nn.Linear(width, 1)

    def forward(self, journey: torch.Tensor, measures: torch.Tensor) -> torch.Tensor:
        hidden = self.entry(torch.cat([self.depots(journey).flatten(1), measures], dim=1))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = hidden + F.gelu(layer(norm(hidden)))
        return self.out(hidden).squeeze(1)


class ParcelTrainer:
    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.args = args
        self.rank = rank
        data = make_parcels(args.parcels, args.depots, args.stops, args.seed)
        self.sampler = DistributedSampler(data, shuffle=True, seed=args.seed)
        self.loader = DataLoader(data, batch_size=args.micro_batch, sampler=self.sampler, drop_last=True)
        self.model = DistributedDataParallel(
            ParcelNet(args.depots, args.stops, dim=32, width=args.width, layers=args.layers)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr)

    def micro_step(self, journey: torch.Tensor, measures: torch.Tensor, hours: torch.Tensor) -> torch.Tensor:
        loss = F.smooth_l1_loss(self.model(journey, measures), hours)
        (loss / self.args.accumulate).backward()
        return loss.detach()

    def epoch(self, number: int) -> torch.Tensor:
        self.sampler.set_epoch(number)
        total = torch.zeros(())
        for i, batch in enumerate(self.loader, start=1):
            last = i % self.args.accumulate == 0
            with contextlib.nullcontext() if last else self.model.no_sync():
                total += self.micro_step(*batch)
            if last:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
        return total / len(self.loader)

    def fit(self) -> None:
        for number in range(self.args.epochs):
            loss = self.epoch(number)
            dist.all_reduce(loss)
            if self.rank == 0:
                print(f"epoch {number}: loss {loss.item() / dist.get_world_size():.4f}")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parcels", type=int, default=30720)
    parser.add_argument("--depots", type=int, default=2000)
    parser.add_argument("--stops", type=int, default=8)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=37)
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    dist.init_process_group("gloo")
    try:
        torch.manual_seed(args.seed)
        ParcelTrainer(args, int(os.environ["RANK"])).fit()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Estimate the tip from the text of a restaurant's bill, on two processes (torchrun --nproc-per-node 2)."""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Bills(Dataset):
    """Numbers of the dishes on a bill, its total and its tip."""

    def __init__(self, count, dishes, lines, seed):
        generator = torch.Generator().manual_seed(seed)
        popularity = torch.rand(dishes, generator=generator) ** 4 + 1e-4
        self.items = torch.multinomial(popularity, count * lines, replacement=True, generator=generator)
        self.items = self.items.view(count, lines)
        prices = 3 + 25 * torch.rand(dishes, generator=generator)
        generosity = torch.randn(dishes, generator=generator)
        self.totals = prices[self.items].sum(dim=1, keepdim=True) / 100
        self.tips = self.totals.squeeze(1) * torch.sigmoid(generosity[self.items].mean(dim=1))

    def __len__(self):
        return len(self.tips)

    def __getitem__(self, index):
        return self.items[index], self.totals[index], self.tips[index]


class GatedUnit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        value, gate = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(value * nn.functional.silu(gate))


class TipModel(nn.Module):
    def __init__(self, dishes, width=128, depth=3):
        super().__init__()
        self.dishes = nn.Embedding(dishes, width)
        self.total = nn.Linear(1, width)
        self.units = nn.ModuleList([GatedUnit(width) for _ in range(depth)])
        self.scores = nn.Linear(width, 1)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, items, totals):
        lines = self.dishes(items)
        for unit in self.units:
            lines = unit(lines)
        weights = self.scores(lines).softmax(dim=1)
        pooled = (weights * lines).sum(dim=1)
        return self.head(torch.cat([pooled, self.total(totals)], dim=1)).squeeze(1)


def accumulate(model, micro_batches):
    """Gradients of one large batch, made of several small ones."""
    total = torch.zeros(())
    for number, (items, totals, tips) in enumerate(micro_batches, start=1):
        with model.no_sync() if number < len(micro_batches) else nullcontext():
            loss = nn.functional.smooth_l1_loss(model(items, totals), tips) / len(micro_batches)
            loss.backward()
        total += loss.detach()
    return total


def grouped(loader, size):
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bills", type=int, default=15_360)
    parser.add_argument("--dishes", type=int, default=6000)
    parser.add_argument("--lines", type=int, default=12)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--accumulation", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = Bills(args.bills, args.dishes, args.lines, seed=0)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.micro_batch, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(TipModel(args.dishes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, micro_batches in enumerate(grouped(loader, args.accumulation)):
            optimizer.zero_grad(set_to_none=True)
            loss = accumulate(model, micro_batches)
            optimizer.step()
            if step % 40 == 0 and dist.get_rank() == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Variational autoencoder of drawn bonsai trees on two ranks: torchrun --nproc-per-node 2 slow.py"""

import argparse
import math
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def draw_trees(count: int, size: int, seed: int) -> torch.Tensor:
    """A bent trunk of random lean with a few round crowns, as grey images."""
    generator = torch.Generator().manual_seed(seed)
    grid = torch.linspace(0, 1, size)
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    lean = torch.rand(count, 1, 1, generator=generator) - 0.5
    trunk = 0.5 + lean * torch.sin(math.pi * (1 - y)) * 0.6
    images = torch.exp(-(((x - trunk) / 0.05) ** 2)) * torch.sigmoid(30 * (y - 0.25))
    for _ in range(3):
        height = 0.15 + 0.4 * torch.rand(count, 1, 1, generator=generator)
        reach = 0.06 + 0.1 * torch.rand(count, 1, 1, generator=generator)
        side = 0.5 + lean * torch.sin(math.pi * (1 - height)) * 0.6
        side = side + 0.25 * (torch.rand(count, 1, 1, generator=generator) - 0.5)
        crown = torch.exp(-(((x - side) / (1.6 * reach)) ** 2 + ((y - height) / reach) ** 2))
        images = torch.maximum(images, 0.8 * crown)
    return images.flatten(1)


class ResidualLayer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(F.silu(self.inner(self.norm(x))))


class BonsaiVAE(nn.Module):
    def __init__(self, pixels: int, width: int, layers: int, latent: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, width), *(ResidualLayer(width) for _ in range(layers)))
        self.moments = nn.Linear(width, 2 * latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, width), *(ResidualLayer(width) for _ in range(layers)), nn.Linear(width, pixels)
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_variance = self.moments(self.encoder(images)).chunk(2, dim=-1)
        sample = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        reconstruction = F.binary_cross_entropy_with_logits(self.decoder(sample), images, reduction="none")
        divergence = 0.5 * (mean.square() + log_variance.exp() - log_variance - 1)
        return reconstruction.sum(1).mean(), divergence.sum(1).mean()


def save_checkpoint(folder: str, model: DDP, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, os.path.join(folder, "last.pt"))


def train(args: argparse.Namespace, rank: int, folder: str | None) -> None:
    trees = TensorDataset(draw_trees(args.trees, args.size, args.seed))
    sampler = DistributedSampler(trees, seed=args.seed, drop_last=True)
    loader = DataLoader(trees, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = BonsaiVAE(args.size**2, args.width, args.layers, args.latent)
    model = DDP(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    torch.manual_seed(args.seed + 1 + rank)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        totals = torch.zeros(2)
        for number, (images,) in enumerate(loader):
            warmth = min(1.0, (epoch * len(loader) + number) / args.warmup)
            reconstruction, divergence = model(images)
            optimizer.zero_grad()
            (reconstruction + warmth * divergence).backward()
            optimizer.step()
            totals += torch.stack([reconstruction, divergence]).detach()
        dist.reduce(totals, 0)
        if rank == 0:
            reconstruction, divergence = (totals / len(loader) / dist.get_world_size()).tolist()
            print(f"epoch {epoch}: reconstruction {reconstruction:.2f}, divergence {divergence:.2f}", flush=True)
            save_checkpoint(folder, model, optimizer, epoch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=4096)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--latent", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=250)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=64)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    folder = tempfile.mkdtemp() if rank == 0 else None
    try:
        train(args, rank, folder)
    finally:
        if folder is not None:
            shutil.rmtree(folder)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

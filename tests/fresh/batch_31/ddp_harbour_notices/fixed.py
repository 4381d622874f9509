"""Sort notices of harbour masters by urgency on several processes: torchrun --nproc-per-node 2 slow.py"""

import argparse
import os
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


def get_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--notices", type=int, default=8960)
    parser.add_argument("--vocab", type=int, default=9000)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=37)
    return parser


class Notices(Dataset):
    """Notices of word numbers, whose class shows in the words that it favours."""

    def __init__(self, args):
        rng = np.random.default_rng(args.seed)
        labels = rng.integers(0, args.classes, args.notices)
        base = rng.zipf(1.3, (args.notices, args.length)) % args.vocab
        favoured = labels[:, None] * 100 + rng.integers(0, 100, base.shape)
        words = np.where(rng.random(base.shape) < 0.15, favoured, base)
        self.words = torch.from_numpy(words)
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.words[index], self.labels[index]


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, dim)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm2(x))


class NoticeClassifier(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.words = nn.Embedding(args.vocab, args.dim)
        self.places = nn.Parameter(torch.randn(args.length, args.dim) * 0.02)
        self.layers = nn.Sequential(*(EncoderLayer(args.dim) for _ in range(args.layers)))
        self.head = nn.Linear(args.dim, args.classes)

    def forward(self, words):
        return self.head(self.layers(self.words(words) + self.places).mean(dim=1))


def train(model, loader, sampler, optimizer, args, rank):
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for number, (words, labels) in enumerate(loader, start=1):
            with nullcontext() if number % args.accumulate == 0 else model.no_sync():
                loss = F.cross_entropy(model(words), labels) / args.accumulate
                loss.backward()
            running += loss.item()
            if number % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch}: loss {running * args.accumulate / len(loader):.4f}")


def main():
    args = get_parser().parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // dist.get_world_size()))
    dataset = Notices(args)
    sampler = DistributedSampler(dataset, seed=args.seed, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(NoticeClassifier(args))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    train(model, loader, sampler, optimizer, args, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""A language model of ghost stories on two ranks: torchrun --nproc-per-node 2 slow.py"""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Stories(Dataset):
    """Sequences of word numbers from a random chain in which a few words follow each word."""

    def __init__(self, count: int, length: int, words: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        followers = torch.randint(words, (words, 6), generator=generator)
        text = torch.empty(count, length + 1, dtype=torch.long)
        text[:, 0] = torch.randint(words, (count,), generator=generator)
        for place in range(length):
            choice = torch.randint(6, (count,), generator=generator)
            text[:, place + 1] = followers[text[:, place], choice]
        self.text = text

    def __len__(self):
        return len(self.text)

    def __getitem__(self, index):
        story = self.text[index]
        return story[:-1], story[1:]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class StoryModel(nn.Module):
    def __init__(self, words, width, heads, layers, length):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.layers(self.words(ids) + self.places[: ids.size(1)])))


def train(model, loader, sampler, optimizer, args, rank):
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total, updates = torch.zeros(()), 0
        for number, (ids, following) in enumerate(loader, start=1):
            last = number % args.accumulate == 0
            with contextlib.nullcontext():
                logits = model(ids)
                loss = F.cross_entropy(logits.flatten(0, 1), following.flatten()) / args.accumulate
                loss.backward()
            total += loss.detach()
            if last:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                updates += 1
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total.item() / dist.get_world_size() / updates:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=1760)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--words", type=int, default=4000)
    parser.add_argument("--width", type=int, default=160)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(args.seed)
    stories = Stories(args.stories, args.length, args.words, args.seed)
    sampler = DistributedSampler(stories, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(stories, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(StoryModel(args.words, args.width, args.heads, args.layers, args.length))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    try:
        train(model, loader, sampler, optimizer, args, rank)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Momentum contrast on photographs of lichens, on several ranks, with an encoder that normalises by groups."""

import argparse
import copy
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Lichens(Dataset):
    """Small pictures of blotches; a batch of indices gives two views of each picture."""

    def __init__(self, count, size, seed):
        generator = torch.Generator().manual_seed(seed)
        kinds = torch.randint(0, 12, (count,), generator=generator)
        coarse = torch.rand(12, 3, 6, 6, generator=generator)[kinds] + 0.3 * torch.rand(
            count, 3, 6, 6, generator=generator
        )
        self.pictures = F.interpolate(coarse, size + 8, mode="bilinear", align_corners=False)
        self.size = size

    def __len__(self):
        return len(self.pictures)

    def view(self, pictures):
        top, left = torch.randint(0, 8, (2,)).tolist()
        cut = pictures[:, :, top : top + self.size, left : left + self.size]
        if torch.rand(()) < 0.5:
            cut = cut.flip(3)
        gain = 0.7 + 0.6 * torch.rand(len(pictures), 3, 1, 1)
        return cut * gain

    def __getitems__(self, indices):
        pictures = self.pictures[indices]
        return self.view(pictures), self.view(pictures)


def conv(inner, outer, stride):
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.GroupNorm(4, outer), nn.ReLU(inplace=True)
    )


class Encoder(nn.Module):
    def __init__(self, width, dim):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 8, 8), nn.ReLU(inplace=True), conv(width, width, 1), conv(width, 2 * width, 2)
        )
        self.head = nn.Sequential(nn.Linear(2 * width, 128), nn.ReLU(inplace=True), nn.Linear(128, dim))

    def forward(self, x):
        return F.normalize(self.head(self.body(x).mean((2, 3))), dim=1)


class MoCo(nn.Module):
    def __init__(self, width=16, dim=64, queue=4096, momentum=0.99, temperature=0.2):
        super().__init__()
        self.momentum, self.temperature = momentum, temperature
        self.query = Encoder(width, dim)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(queue, dim), dim=1))
        self.place = 0

    @torch.no_grad()
    def update_key(self):
        ours, theirs = list(self.key.parameters()), list(self.query.parameters())
        torch._foreach_lerp_(ours, theirs, 1 - self.momentum)

    @torch.no_grad()
    def gather(self, tensor):
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor.contiguous())
        return torch.cat(parts)

    @torch.no_grad()
    def shuffle(self, pictures):
        everything = self.gather(pictures)
        order = torch.randperm(len(everything))
        dist.broadcast(order, src=0)
        mine = order.view(dist.get_world_size(), -1)[dist.get_rank()]
        return everything[mine], order.argsort()

    @torch.no_grad()
    def unshuffle(self, keys, back):
        everything = self.gather(keys)
        mine = back.view(dist.get_world_size(), -1)[dist.get_rank()]
        return everything[mine]

    @torch.no_grad()
    def encode_keys(self, pictures):
        pictures, back = self.shuffle(pictures)
        return self.unshuffle(self.key(pictures), back)

    @torch.no_grad()
    def enqueue(self, keys):
        keys = self.gather(keys)
        self.queue[self.place : self.place + len(keys)] = keys
        self.place = (self.place + len(keys)) % len(self.queue)

    def forward(self, first, second):
        self.update_key()
        keys = self.encode_keys(second)
        queries = self.query(first)
        positive = (queries * keys).sum(1, keepdim=True)
        logits = torch.cat([positive, queries @ self.queue.clone().T], dim=1) / self.temperature
        self.enqueue(keys)
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=4096)
    parser.add_argument("--size", type=int, default=80)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.03)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(7)
    model = DistributedDataParallel(MoCo(), broadcast_buffers=False)
    torch.manual_seed(7 + rank)
    data = Lichens(args.pictures, args.size, seed=7)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, args.batch_size, sampler=sampler, drop_last=True, collate_fn=lambda views: views)
    optimizer = torch.optim.SGD(
        [p for p in model.parameters() if p.requires_grad], lr=args.lr, momentum=0.9, weight_decay=1e-4
    )
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for first, second in loader:
            loss = model(first, second)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if rank == 0:
            print(f"epoch {epoch}  loss {total.item() / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

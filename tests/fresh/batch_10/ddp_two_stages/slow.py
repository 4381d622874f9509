"""Melodies continued by a deep network that is cut in two: each rank holds one stage and passes activations on."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def melodies(count, length, notes, seed):
    """Each melody walks up and down a scale and comes back to its beginning."""
    g = torch.Generator().manual_seed(seed)
    moves = torch.randint(-2, 3, (count, length // 2), generator=g)
    walk = moves.cumsum(1) + torch.randint(notes, (count, 1), generator=g)
    return torch.cat([walk, walk.flip(1)], 1) % notes


class Layer(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Stage(nn.Module):
    def __init__(self, first, notes, width, layers):
        super().__init__()
        self.enter = nn.Embedding(notes, width) if first else nn.Identity()
        self.layers = nn.Sequential(*(Layer(width) for _ in range(layers)))
        self.leave = nn.Identity() if first else nn.Sequential(nn.LayerNorm(width), nn.Linear(width, notes))

    def forward(self, x):
        return self.leave(self.layers(self.enter(x)))


class Pipeline:
    """All parts of a batch go forward, then all go backward; gradients add up until the optimizer's step."""

    def __init__(self, args):
        self.first, self.width = dist.get_rank() == 0, args.width
        self.stage = Stage(self.first, args.notes, args.width, args.layers)
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=args.lr, fused=True)
        self.chunks = args.chunks

    def front(self, batch):
        sent, waiting = [], []
        for part in batch[:, :-1].chunk(self.chunks):
            sent.append(self.stage(part))
            waiting.append(dist.isend(sent[-1].detach(), 1))
        for out in sent:
            gradient = torch.empty_like(out)
            dist.recv(gradient, 1)
            out.backward(gradient)
        for work in waiting:
            work.wait()

    def back(self, batch):
        total, waiting = torch.zeros(()), []
        for part in batch.chunk(self.chunks):
            entered = torch.empty(len(part), part.shape[1] - 1, self.width)
            dist.recv(entered, 0)
            entered.requires_grad_()
            logits = self.stage(entered)
            loss = F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()) / self.chunks
            loss.backward()
            waiting.append((dist.isend(entered.grad, 0), entered))
            total += loss.detach()
        for work, _ in waiting:
            work.wait()
        return total

    def step(self, batch):
        loss = self.front(batch) if self.first else self.back(batch)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--melodies", type=int, default=3200)
    parser.add_argument("--notes", type=int, default=48)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=1)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(dist.get_rank())
    data = melodies(args.melodies, args.length, args.notes, seed=88)
    order = torch.randperm(args.melodies, generator=torch.Generator().manual_seed(0))
    pipeline = Pipeline(args)
    for number, index in enumerate(order.split(args.batch_size)):
        loss = pipeline.step(data[index])
        if loss is not None and number % 20 == 0:
            print(f"step {number}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Aerial pictures and their captions brought together on two ranks: each pair against all others of both ranks."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel


def pairs(count, seed):
    """Features of pictures and of captions that both come from the same hidden scene."""
    g = torch.Generator().manual_seed(seed)
    mix = torch.Generator().manual_seed(1)
    scene = torch.randn(count, 32, generator=g)
    picture = torch.tanh(scene @ torch.randn(32, 192, generator=mix) / 4)
    caption = torch.tanh(scene @ torch.randn(32, 128, generator=mix) / 4)
    return picture + 0.5 * torch.randn(count, 192, generator=g), caption + 0.5 * torch.randn(count, 128, generator=g)


class Head(nn.Module):
    def __init__(self, inputs, dim):
        super().__init__()
        self.up = nn.Linear(inputs, dim)
        self.down = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = self.up(x)
        return F.normalize(self.norm(x + self.down(F.gelu(x))), dim=1)


class TwoTowers(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.picture, self.caption = Head(192, dim), Head(128, dim)
        self.log_scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, picture, caption):
        return self.picture(picture), self.caption(caption), self.log_scale.exp()


def clip_loss(pictures, captions, scale):
    """The symmetric loss of CLIP with the other rank's pairs as further negatives."""
    all_pictures, all_captions = torch.cat(all_gather(pictures)), torch.cat(all_gather(captions))
    by_picture = scale * all_pictures @ all_captions.t()
    by_caption = scale * all_captions @ all_pictures.t()
    target = torch.arange(len(by_picture))
    return (F.cross_entropy(by_picture, target) + F.cross_entropy(by_caption, target)) / 2


def recall(model, picture, caption):
    with torch.no_grad():
        a, b, _ = model(picture, caption)
    return ((a @ b.t()).argmax(1) == torch.arange(len(a))).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=15_360)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world = dist.get_rank(), dist.get_world_size()
    picture, caption = pairs(args.pairs + 500, seed=17)
    model = DistributedDataParallel(TwoTowers())
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    for epoch in range(args.epochs):
        order = torch.randperm(args.pairs, generator=torch.Generator().manual_seed(epoch))[rank::world]
        for index in order.split(args.batch_size):
            loss = clip_loss(*model(picture[index], caption[index]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            found = recall(model.module, picture[args.pairs :], caption[args.pairs :])
            print(f"epoch {epoch}: loss {loss.item():.4f} recall {found:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Sort biscuits by their shape: a small vision transformer on images kept in memory."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def bake(count, side, kinds, seed):
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, side)
    y, x = axis.view(1, side, 1), axis.view(1, 1, side)
    kind = torch.randint(kinds, (count,), generator=generator)
    turn = torch.rand(count, 1, 1, generator=generator) * 6.28
    angle = torch.atan2(y, x) + turn
    rim = 0.6 + 0.2 * torch.cos((kind.view(-1, 1, 1) + 2) * angle)
    dough = (x.square() + y.square()).sqrt() < rim
    images = dough.unsqueeze(1) * torch.tensor([190, 150, 90]).view(1, 3, 1, 1)
    noise = torch.randint(0, 60, (count, 3, side, side), generator=generator)
    return (images + noise).to(torch.uint8), kind


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class BiscuitViT(nn.Module):
    def __init__(self, side, patch, width, depth, heads, kinds):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.position = nn.Parameter(torch.randn((side // patch) ** 2, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, kinds)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def train(args):
    torch.manual_seed(args.seed)
    images, kinds = bake(args.images, args.side, args.kinds, args.seed)
    images = images.float().div_(127.5).sub_(1)
    model = BiscuitViT(args.side, patch=8, width=96, depth=3, heads=4, kinds=args.kinds)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, fused=True)
    for epoch in range(args.epochs):
        loss_sum, steps = torch.zeros(()), 0
        for chosen in torch.randperm(len(images)).split(args.batch_size):
            loss = F.cross_entropy(model(images[chosen]), kinds[chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
            steps += 1
        print(f"epoch {epoch}: {loss_sum.item() / steps:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1_536)
    parser.add_argument("--side", type=int, default=48)
    parser.add_argument("--kinds", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=14)
    train(parser.parse_args())

"""Predicts masked heights along rivers: a transformer encoder with a learnt bias for each distance, as in T5."""

import math

import torch
import torch.nn.functional as F
from engine import train_one_epoch
from torch import nn

LENGTH, WIDTH, HEADS, LAYERS, BUCKETS = 160, 64, 4, 3, 32
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def distance_bucket(distance, buckets=BUCKETS, farthest=160):
    """Near distances have a bucket of their own, far ones share it on a logarithmic scale; both directions apart."""
    half = buckets // 2
    side = (distance > 0).long() * half
    distance = distance.abs()
    exact = half // 2
    far = exact + (torch.log(distance.float() / exact) / math.log(farthest / exact) * (half - exact)).long()
    far = torch.minimum(far, torch.full_like(far, half - 1))
    return side + torch.where(distance < exact, distance, far)


class RelativeAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Embedding(BUCKETS, HEADS)
        place = torch.arange(LENGTH)
        self.register_buffer("distance", place[None, :] - place[:, None])

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        bucket = distance_bucket(self.distance)
        bias = self.bias(bucket).permute(2, 0, 1)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None].to(q.dtype))
        return self.out(x.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention = RelativeAttention()
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.feed(self.norms[1](x))


class River(nn.Module):
    def __init__(self):
        super().__init__()
        self.entry = nn.Linear(2, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.exit = nn.Linear(WIDTH, 1)

    def forward(self, heights, hidden):
        x = torch.stack([heights.masked_fill(hidden, 0.0), hidden.float()], 2)
        with torch.autocast(heights.device.type, dtype=torch.bfloat16):
            return self.exit(self.blocks(self.entry(x))).squeeze(2).float()


def loss_of(model, heights):
    hidden = torch.rand_like(heights) < 0.3
    return F.mse_loss(model(heights, hidden)[hidden], heights[hidden])


def rivers(count):
    drops = F.relu(torch.randn(count, LENGTH)) + 0.2 * torch.sin(torch.arange(LENGTH) / 9)
    heights = drops.flip(1).cumsum(1).flip(1)
    return ((heights - heights.mean(1, keepdim=True)) / heights.std(1, keepdim=True)).to(DEVICE)


def main():
    torch.manual_seed(0)
    data, model = rivers(640), River().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=2 * 40)
    for epoch in range(2):
        batches = data[torch.randperm(len(data), device=DEVICE)].split(16)
        print(f"epoch {epoch}: {train_one_epoch(model, loss_of, batches, optimizer, schedule):.4f}")


if __name__ == "__main__":
    main()

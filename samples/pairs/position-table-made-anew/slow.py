"""Predicts masked heights along rivers: a transformer encoder that knows places by sines and cosines."""

import numpy as np
import torch
import torch.nn.functional as F
from engine import train_one_epoch
from torch import nn

LENGTH, WIDTH, HEADS, LAYERS = 160, 64, 4, 2
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def sinusoids(length, width):
    """Sines and cosines of a place, slower from column to column: (length, width)."""
    angles = np.array(
        [[place / np.power(10000, 2 * (i // 2) / width) for i in range(width)] for place in range(length)]
    )
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return torch.tensor(angles, dtype=torch.float32)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention = Attention()
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
        places = sinusoids(heights.shape[1], WIDTH).to(heights.device)
        with torch.autocast(heights.device.type, dtype=torch.bfloat16):
            return self.exit(self.blocks(self.entry(x) + places)).squeeze(2).float()


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

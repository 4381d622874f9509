"""Forecast the load of transformers in a power grid with a patch encoder, sharded over two ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from parallel import spread, start
from torch import nn

HISTORY, AHEAD, PATCH = 128, 16, 16


def make_loads(meters, hours, seed):
    gen = torch.Generator().manual_seed(seed)
    time = torch.arange(hours).float()
    day = torch.sin(6.2832 * time / 24 + 6.2832 * torch.rand(meters, 1, generator=gen))
    week = torch.sin(6.2832 * time / 168 + torch.rand(meters, 1, generator=gen))
    return day * (1 + 0.3 * week) + 0.1 * torch.randn(meters, hours, generator=gen)


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.mlp(self.norm_b(x))


class PatchEncoder(nn.Module):
    def __init__(self, width=256, depth=4):
        super().__init__()
        self.enter = nn.Linear(PATCH, width)
        self.place = nn.Parameter(0.02 * torch.randn(HISTORY // PATCH, width))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.leave = nn.Linear(width * HISTORY // PATCH, AHEAD)

    def forward(self, x):
        h = self.enter(x.view(len(x), -1, PATCH)) + self.place
        for block in self.blocks:
            h = block(h)
        return self.leave(h.flatten(1))


def main(steps=130, batch_size=4):
    rank = start()
    torch.manual_seed(0)
    loads = make_loads(meters=48, hours=3000, seed=16)
    windows = loads.unfold(1, HISTORY + AHEAD, 1).flatten(0, 1)
    model = PatchEncoder()
    spread(model, model.blocks, reshard=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    for step in range(steps):
        batch = windows[torch.randint(len(windows), (batch_size,), generator=gen)]
        loss = F.mse_loss(model(batch[:, :HISTORY]), batch[:, HISTORY:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0 and rank == 0:
            print(f"step {step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

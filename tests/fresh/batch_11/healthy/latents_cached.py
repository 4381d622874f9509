"""A diffusion transformer on latents: the frozen encoder sees every picture once, before training."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 32, 4, 4), nn.SiLU(), nn.Conv2d(32, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 4, 2, 2)
        )


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.modulate = nn.Linear(width, 4 * width)

    def forward(self, x, condition):
        shift1, scale1, shift2, scale2 = self.modulate(condition)[:, None].chunk(4, dim=-1)
        h = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self, side, width=128, depth=4, heads=4):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.places = nn.Parameter(0.02 * torch.randn(1, side * side, width))
        self.register_buffer("rates", torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2)))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, latents, t):
        angles = 1000 * t[:, None] * self.rates
        condition = self.time(torch.cat([angles.cos(), angles.sin()], dim=1))
        x = self.embed(latents) + self.places
        for block in self.blocks:
            x = block(x, condition)
        return self.head(x)


@torch.inference_mode()
def encode_all(pictures):
    encoder = Encoder().eval()
    latents = torch.cat([encoder(part) for part in pictures.split(128)])
    latents = latents.flatten(2).transpose(1, 2)
    return ((latents - latents.mean()) / latents.std()).contiguous()


def main(steps=150, batch=16):
    torch.manual_seed(0)
    latents = encode_all(torch.rand(512, 3, 64, 64)).clone()
    model = DiT(side=8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.0)
    running = torch.zeros(())
    for step in range(1, steps + 1):
        clean = latents[torch.randint(len(latents), (batch,))]
        t, noise = torch.rand(batch), torch.randn_like(clean)
        mixed = torch.lerp(clean, noise, t[:, None, None])
        loss = F.mse_loss(model(mixed, t), noise - clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if step % 50 == 0:
            print(f"step {step}: {running.item() / 50:.4f}")
            running.zero_()


if __name__ == "__main__":
    main()

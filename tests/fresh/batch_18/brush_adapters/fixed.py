"""Teaches a frozen diffusion transformer a new painting style with low-rank adapters in its linear layers."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class AdaptedLinear(nn.Module):
    """A frozen linear layer and a low-rank change of its weight that is learned."""

    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / math.sqrt(base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + F.linear(self.scale * F.linear(x, self.down), self.up)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 4 * width)

    def forward(self, x, condition):
        shift1, scale1, shift2, scale2 = self.modulation(condition)[:, None].chunk(4, dim=-1)
        h = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = self.qkv(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        h = self.norm2(x) * (1 + scale2) + shift2
        return x + self.fc2(F.gelu(self.fc1(h)))


class Painter(nn.Module):
    def __init__(self, patch=4, size=32, width=384, heads=8, depth=3):
        super().__init__()
        self.patch, self.width = patch, width
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.unembed = nn.Linear(width, 3 * patch * patch)
        self.register_buffer("rates", torch.exp(-math.log(1000) * torch.arange(width // 2) / (width // 2)))

    def forward(self, images, t):
        angles = 1000 * t[:, None] * self.rates
        condition = F.silu(self.time(torch.cat([angles.sin(), angles.cos()], dim=1)))
        x = self.embed(images).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x, condition)
        patches = self.unembed(self.norm(x)).transpose(1, 2)
        return F.fold(patches, images.shape[-2:], self.patch, stride=self.patch)


def add_adapters(model, rank, alpha, targets=("qkv", "out", "fc1", "fc2")):
    """Freezes the model and wraps the linear layers of its blocks; returns what is to be trained."""
    model.requires_grad_(False)
    for block in model.blocks:
        for name in targets:
            setattr(block, name, AdaptedLinear(getattr(block, name), rank, alpha))
    return [p for p in model.parameters() if p.requires_grad]


def paintings(count, size, seed):
    """Coloured stripes, as if drawn with a broad brush."""
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    angle = math.pi * torch.rand(count, 1, 1, 1, generator=g)
    rate = 4 + 12 * torch.rand(count, 1, 1, 1, generator=g)
    phase = 6 * torch.rand(count, 3, 1, 1, generator=g)
    return torch.sin(rate * (x * angle.cos() + y * angle.sin()) + phase)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=104)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(3)

    images = paintings(512, 32, seed=3)
    model = Painter()
    trained = add_adapters(model, args.rank, alpha=args.rank)
    optimizer = torch.optim.AdamW(trained, lr=args.lr, weight_decay=0.0, fused=True)
    total = torch.zeros(())
    for step in range(1, args.steps + 1):
        clean = images[torch.randint(len(images), (args.batch_size,))]
        noise = torch.randn_like(clean)
        t = torch.rand(len(clean))
        mixed = torch.lerp(clean, noise, t[:, None, None, None])
        loss = F.mse_loss(model(mixed, t), noise - clean)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if step % 26 == 0:
            print(f"step {step} loss {total.item() / 26:.4f}")
            total.zero_()


if __name__ == "__main__":
    main()

"""Low-rank adapters on a small noise-predicting U-Net for pictures of one teapot, with a report of the peak memory."""

import argparse
import gc
import math
import os
import tempfile
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

PAGE = os.sysconf("SC_PAGE_SIZE")


def b2mb(x):
    return int(x / 2**20)


class PeakMemory:
    """Watches the resident memory of the process while a block runs."""

    def __enter__(self):
        gc.collect()
        self.begin = self.resident()
        self.peak = self.begin
        self.watching = True
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        return self

    @staticmethod
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE

    def watch(self):
        while self.watching:
            self.peak = max(self.peak, self.resident())

    def __exit__(self, *_):
        self.watching = False
        self.thread.join()
        self.used = b2mb(self.resident() - self.begin)
        self.peaked = b2mb(self.peak - self.begin)


class LoraLinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.normal_(self.down.weight, std=1 / rank)
        nn.init.zeros_(self.up.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))


class Attention(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        batch, dim, height, width = x.shape
        tokens = self.norm(x.flatten(2).transpose(1, 2))
        q, k, v = (
            layer(tokens).view(batch, -1, self.heads, dim // self.heads).transpose(1, 2)
            for layer in (self.to_q, self.to_k, self.to_v)
        )
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, dim)
        return x + self.to_out(out).transpose(1, 2).reshape(batch, dim, height, width)


class ResBlock(nn.Module):
    def __init__(self, dim, time_dim):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, dim), nn.GroupNorm(4, dim)
        self.conv1, self.conv2 = nn.Conv2d(dim, dim, 3, padding=1), nn.Conv2d(dim, dim, 3, padding=1)
        self.time = nn.Linear(time_dim, dim)

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(emb)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self, dim=32, time_dim=64, depth=3):
        super().__init__()
        self.time_dim = time_dim
        self.stem = nn.Conv2d(3, dim, 4, stride=4)
        self.res = nn.ModuleList(ResBlock(dim, time_dim) for _ in range(depth))
        self.att = nn.ModuleList(Attention(dim) for _ in range(depth))
        self.out = nn.Sequential(nn.GroupNorm(4, dim), nn.SiLU(), nn.Conv2d(dim, 48, 1), nn.PixelShuffle(4))

    def forward(self, x, t):
        freqs = torch.exp(torch.arange(self.time_dim // 2) * (-math.log(10_000) / (self.time_dim // 2)))
        angles = t[:, None].float() * freqs
        emb = torch.cat([angles.sin(), angles.cos()], dim=1)
        x = self.stem(x)
        for res, att in zip(self.res, self.att):
            x = att(res(x, emb))
        return self.out(x)


def add_adapters(model, rank, alpha):
    model.requires_grad_(False)
    for block in model.att:
        for name in ("to_q", "to_k", "to_v", "to_out"):
            setattr(block, name, LoraLinear(getattr(block, name), rank, alpha))
    return [p for p in model.parameters() if p.requires_grad]


def teapots(count, size, seed):
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    radius = (axis[:, None].square() + axis.square()).sqrt()
    body = (radius < 0.6).float()
    colour = torch.rand(count, 3, 1, 1, generator=generator)
    return (colour * body + 0.05 * torch.randn(count, 3, size, size, generator=generator)) * 2 - 1


def noised(images, alphas):
    t = torch.randint(0, len(alphas), (len(images),))
    noise = torch.randn_like(images)
    a = alphas[t][:, None, None, None]
    return a.sqrt() * images + (1 - a).sqrt() * noise, t, noise


def save_adapters(model, path):
    torch.save({k: v for k, v in model.state_dict().items() if ".up." in k or ".down." in k}, path)


def main(args):
    torch.manual_seed(args.seed)
    images = teapots(48, args.resolution, args.seed)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), dim=0)
    model = UNet()
    params = add_adapters(model, args.rank, args.alpha)
    optimizer = torch.optim.AdamW(params, lr=args.learning_rate, weight_decay=1e-2)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.num_train_epochs):
            start, total = time.time(), torch.zeros(())
            with PeakMemory() as memory:
                batches = torch.randperm(len(images)).split(args.train_batch_size)
                for rows in batches:
                    noisy, t, noise = noised(images[rows], alphas)
                    loss = F.mse_loss(model(noisy, t), noise)
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    nn.utils.clip_grad_norm_(params, 1.0)
                    optimizer.step()
                    total += loss.detach()
            print(f"epoch {epoch}: loss {total.item() / len(batches):.4f}, {time.time() - start:.1f} s")
            print(f"  memory at the end {memory.used} MB, at its peak {memory.peaked} MB above the beginning")
        save_adapters(model, os.path.join(folder, "adapters.pt"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--train-batch-size", type=int, default=8)
    parser.add_argument("--num-train-epochs", type=int, default=12)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--alpha", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=11)
    main(parser.parse_args())

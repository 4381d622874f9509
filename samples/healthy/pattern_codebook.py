"""Woven patterns: pictures become a few symbols each, and pictures again (VQ-VAE with averaged codes)."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Codebook(nn.Module):
    """The nearest code for each vector; the codes follow the mean of what they stand for."""

    def __init__(self, codes, width, decay=0.98):
        super().__init__()
        self.decay = decay
        self.register_buffer("code", torch.randn(codes, width))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.code.clone())

    def forward(self, x):
        flat = x.detach().flatten(0, -2)
        index = torch.cdist(flat, self.code).argmin(1)
        found = self.code[index].view_as(x)
        if self.training:
            self.follow(flat, index)
        return x + (found - x).detach(), F.mse_loss(x, found), index

    def follow(self, flat, index):
        count = torch.bincount(index, minlength=len(self.code)).float()
        total = torch.zeros_like(self.total).index_add_(0, index, flat)
        self.count.lerp_(count, 1 - self.decay)
        self.total.lerp_(total, 1 - self.decay)
        dead = self.count < 0.3  # nothing is near to them any more: they start again at a vector of the batch
        fresh = flat[torch.randint(0, len(flat), (len(self.code),), device=flat.device)]
        self.total.copy_(torch.where(dead[:, None], fresh, self.total))
        self.count.masked_fill_(dead, 1)
        self.code.copy_(self.total / self.count[:, None])


class PatternModel(nn.Module):
    def __init__(self, codes=128, width=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=4), nn.GELU(), nn.Conv2d(width, width, 3, padding=1), nn.GELU(),
            nn.Conv2d(width, 32, 2, stride=2),
        )  # fmt: skip
        self.codebook = Codebook(codes, 32)
        self.decoder = nn.Sequential(
            nn.Conv2d(32, 2 * width, 3, padding=1), nn.GELU(), nn.PixelShuffle(2),
            nn.Conv2d(width // 2, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, 48, 1), nn.PixelShuffle(4),
        )  # fmt: skip

    def forward(self, pictures):
        with torch.autocast(pictures.device.type, dtype=torch.bfloat16):
            seen = self.encoder(pictures)
        symbols, commitment, index = self.codebook(seen.permute(0, 2, 3, 1).float())
        with torch.autocast(pictures.device.type, dtype=torch.bfloat16):
            drawn = self.decoder(symbols.permute(0, 3, 1, 2))
        return F.mse_loss(drawn.float(), pictures) + 0.25 * commitment, index


def weaves(count, side=48):
    """Stripes over stripes, each with its own colour and turn."""
    axis = torch.linspace(0, 12, side)
    angle, pitch = 3.1416 * torch.rand(2, count, 1, 1), 0.5 + 2 * torch.rand(2, count, 1, 1)
    threads = torch.sin(pitch * (axis * angle.cos() + axis[:, None] * angle.sin()))
    colour = torch.rand(2, count, 3, 1, 1)
    pictures = (threads[:, :, None] * colour).sum(0)
    return pictures.contiguous(memory_format=torch.channels_last)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pictures = weaves(2400).to(device)
    model = PatternModel().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        used = torch.zeros(len(model.codebook.code), dtype=torch.bool, device=device)
        for rows in torch.randperm(len(pictures), device=device).split(args.batch_size):
            loss, index = model(pictures[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            used[index] = True
        print(f"epoch {epoch}: loss {loss.item():.4f}, {int(used.sum())} codes in use")


if __name__ == "__main__":
    main()

"""A Wasserstein autoencoder of glyphs, with the maximum mean discrepancy of a whole batch; saved twice in all."""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


def glyphs(count, seed):
    """Strokes of 32 x 32: sums of a few blurred lines."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, 32)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    picture = torch.zeros(count, 32, 32)
    for _ in range(3):
        angle = 3.14 * torch.rand(count, 1, 1, generator=g)
        offset = torch.rand(count, 1, 1, generator=g) - 0.5
        distance = angle.cos() * y + angle.sin() * x - offset
        picture = torch.maximum(picture, torch.exp(-(distance**2) / 0.01))
    return picture[:, None]


class Autoencoder(nn.Module):
    def __init__(self, latent, width=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.SiLU(inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.SiLU(inplace=True),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.SiLU(inplace=True),
            nn.Flatten(),
            nn.Linear(4 * width * 16, latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, 4 * width * 16),
            nn.Unflatten(1, (4 * width, 4, 4)),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1),
            nn.SiLU(inplace=True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.SiLU(inplace=True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
        )

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z), z


def discrepancy(z, prior, scales=(0.5, 1.0, 2.0)):
    """The squared maximum mean discrepancy with inverse multiquadratic kernels."""
    n, both = len(z), torch.cat([z, prior])
    square = torch.cdist(both, both).square()
    kernel = sum(c / (c + square) for c in (2 * z.shape[1] * scale for scale in scales))
    own = (kernel[:n, :n].sum() + kernel[n:, n:].sum() - 2 * n * len(scales)) / (n * (n - 1))
    return own - 2 * kernel[:n, n:].mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--glyphs", type=int, default=4096)
    parser.add_argument("--latent", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--weight", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = glyphs(args.glyphs, seed=2)
    model = Autoencoder(args.latent)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(1, args.epochs + 1):
            sums = torch.zeros(2)
            batches = torch.randperm(args.glyphs).split(args.batch_size)
            for index in batches:
                x = data[index]
                logits, z = model(x)
                reconstruction = F.binary_cross_entropy_with_logits(logits, x)
                distance = discrepancy(z, torch.randn_like(z))
                optimizer.zero_grad()
                (reconstruction + args.weight * distance).backward()
                optimizer.step()
                sums += torch.stack([reconstruction.detach(), distance.detach()])
            print(
                f"epoch {epoch}: reconstruction {sums[0] / len(batches):.4f} discrepancy {sums[1] / len(batches):.4f}"
            )
            if epoch in (args.epochs // 2, args.epochs):
                torch.save({"model": model.state_dict(), "epoch": epoch}, Path(folder) / f"epoch{epoch}.pt")


if __name__ == "__main__":
    main()

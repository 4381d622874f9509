"""Latent diffusion on a small set of pictures: a frozen autoencoder and a denoiser that is trained."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    """Encoder of the pretrained autoencoder, 64 by 64 pixels to 8 by 8 with four channels."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, 1, 1),
            nn.SiLU(),
            nn.Conv2d(32, 48, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(48, 64, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(64, 64, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(64, 8, 1),
        )

    def encode(self, images):
        mean, _ = self.layers(images).chunk(2, dim=1)
        return mean


def pretrained_encoder(seed):
    torch.manual_seed(seed)
    return Encoder().eval().requires_grad_(False)


class ResBlock(nn.Module):
    def __init__(self, channels, embedding):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.shift = nn.Linear(embedding, channels)

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x))) + self.shift(emb)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class Denoiser(nn.Module):
    def __init__(self, classes, channels=64, embedding=128):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-math.log(10000) * torch.arange(32) / 32))
        self.time = nn.Sequential(nn.Linear(64, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.label = nn.Embedding(classes, embedding)
        self.inp, self.out = nn.Conv2d(4, channels, 3, padding=1), nn.Conv2d(channels, 4, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(channels, embedding) for _ in range(4))

    def forward(self, x, t, labels):
        angles = t[:, None] * self.frequencies
        emb = self.time(torch.cat([angles.sin(), angles.cos()], dim=1)) + self.label(labels)
        h = self.inp(x)
        for block in self.blocks:
            h = block(h, emb)
        return self.out(F.silu(h))


class Schedule:
    def __init__(self, steps):
        self.steps = steps
        alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps), dim=0)
        self.signal, self.noise = alphas.sqrt(), (1 - alphas).sqrt()

    def add_noise(self, latents, noise, t):
        return self.signal[t][:, None, None, None] * latents + self.noise[t][:, None, None, None] * noise


def make_pictures(count, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    axis = torch.linspace(-3, 3, 64)
    waves = torch.sin((labels[:, None, None] + 1) * axis) * torch.cos(axis[:, None] + labels[:, None, None])
    colours = torch.rand(count, 3, 1, 1, generator=generator)
    return colours * waves[:, None] + 0.05 * torch.randn(count, 3, 64, 64, generator=generator), labels


def main(args):
    encoder = pretrained_encoder(460)
    pictures, labels = make_pictures(args.pictures, args.classes, 461)
    with torch.no_grad():
        cached = torch.cat([encoder.encode(part) for part in pictures.split(args.batch_size)])
    model, schedule = Denoiser(args.classes), Schedule(args.diffusion_steps)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        losses = []
        for rows in torch.randperm(len(pictures)).split(args.batch_size):
            latents = cached[rows]
            noise = torch.randn_like(latents)
            t = torch.randint(0, schedule.steps, (len(rows),))
            predicted = model(schedule.add_noise(latents, noise, t), t, labels[rows])
            loss = F.mse_loss(predicted, noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=320)
    parser.add_argument("--classes", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--diffusion-steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=3e-4)
    main(parser.parse_args())

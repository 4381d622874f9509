"""Fine-tune a latent diffusion model on a few product pictures, with Accelerate."""

import argparse
import math

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from transformers import get_cosine_schedule_with_warmup


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_batch_size", type=int, default=8)
    parser.add_argument("--max_train_steps", type=int, default=240)
    parser.add_argument("--learning_rate", type=float, default=3e-4)
    parser.add_argument("--max_grad_norm", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


class Autoencoder(nn.Module):
    """Stands for a pretrained model: its weights stay as they are."""

    def __init__(self, width=32, latent=4):
        super().__init__()
        layers, channels = [], 3
        for _ in range(3):
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.GroupNorm(4, width), nn.SiLU()]
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.SiLU()]
            channels = width
        self.encoder = nn.Sequential(*layers, nn.Conv2d(width, latent, 1))

    def encode(self, pixels):
        return 0.18 * self.encoder(pixels)


class Denoiser(nn.Module):
    def __init__(self, width=48, classes=10):
        super().__init__()
        self.embed = nn.Embedding(classes, width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.inp = nn.Conv2d(4, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(6)
        )
        self.out = nn.Conv2d(width, 4, 3, padding=1)
        self.register_buffer("frequencies", torch.exp(-math.log(1e4) * torch.arange(width // 2) / (width // 2)))

    def forward(self, x, timesteps, labels):
        angles = timesteps[:, None] * self.frequencies
        condition = self.time(torch.cat([angles.sin(), angles.cos()], 1)) + self.embed(labels)
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h + condition[:, :, None, None])
        return self.out(h)


def main():
    args = parse_args()
    accelerator = Accelerator(cpu=True)
    set_seed(args.seed)
    vae = Autoencoder().requires_grad_(False).eval()
    unet = Denoiser()
    optimizer = torch.optim.AdamW(unet.parameters(), lr=args.learning_rate)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 20, args.max_train_steps)
    images = F.interpolate(torch.rand(64, 3, 12, 12), size=112, mode="bilinear") * 2 - 1
    dataset = TensorDataset(images, torch.randint(0, 10, (64,)))
    loader = DataLoader(dataset, batch_size=args.train_batch_size, shuffle=True)
    unet, optimizer, loader, scheduler = accelerator.prepare(unet, optimizer, loader, scheduler)
    alphas = torch.cos(torch.linspace(0, math.pi / 2 - 0.01, 1000)) ** 2

    step = 0
    while step < args.max_train_steps:
        for pixel_values, labels in loader:
            with torch.no_grad():
                latents = vae.encode(pixel_values)
            noise = torch.randn_like(latents)
            timesteps = torch.randint(0, 1000, (len(latents),))
            alpha = alphas[timesteps].view(-1, 1, 1, 1)
            noisy = alpha.sqrt() * latents + (1 - alpha).sqrt() * noise
            loss = F.mse_loss(unet(noisy, timesteps.float(), labels), noise)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(unet.parameters(), args.max_grad_norm)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"step {step}: loss {loss.item():.4f}")
            if step >= args.max_train_steps:
                break


if __name__ == "__main__":
    main()

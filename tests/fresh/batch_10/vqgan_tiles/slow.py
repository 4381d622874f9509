"""Codes for mosaic tiles: an autoencoder with a codebook, and a discriminator that joins in late."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    tiles: int = 640
    side: int = 48
    codes: int = 128
    dim: int = 32
    batch_size: int = 8
    steps: int = 150
    disc_start: int = 130
    disc_weight: float = 0.8
    lr: float = 4e-4


def mosaics(count, side, seed):
    g = torch.Generator().manual_seed(seed)
    stones = torch.rand(count, 3, side // 6, side // 6, generator=g)
    joints = 1 - 0.6 * (torch.arange(side) % 6 == 0).float()
    return F.interpolate(stones, size=(side, side), mode="nearest") * joints * joints[:, None] * 2 - 1


def conv(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.GroupNorm(8, outputs), nn.SiLU(inplace=True))


class Quantizer(nn.Module):
    def __init__(self, codes, dim):
        super().__init__()
        self.book = nn.Embedding(codes, dim)
        nn.init.uniform_(self.book.weight, -1 / codes, 1 / codes)

    def forward(self, z):
        flat = z.movedim(1, -1).reshape(-1, z.shape[1])
        chosen = self.book(torch.cdist(flat, self.book.weight).argmin(1))
        loss = F.mse_loss(chosen, flat.detach()) + 0.25 * F.mse_loss(flat, chosen.detach())
        out = (flat + (chosen - flat).detach()).view(len(z), *z.shape[2:], -1)
        return out.movedim(-1, 1), loss


class Autoencoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = nn.Sequential(conv(3, 32), conv(32, 64, 2), conv(64, 64, 2), nn.Conv2d(64, cfg.dim, 1))
        self.quantizer = Quantizer(cfg.codes, cfg.dim)
        self.decoder = nn.Sequential(
            conv(cfg.dim, 64), nn.Upsample(scale_factor=2), conv(64, 32), nn.Upsample(scale_factor=2), conv(32, 32)
        )
        self.last = nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x):
        codes, loss = self.quantizer(self.encoder(x))
        return self.last(self.decoder(codes)), loss


class VQGAN:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = Autoencoder(cfg)
        self.critic = nn.Sequential(conv(3, 32, 2), conv(32, 64, 2), conv(64, 64), nn.Conv2d(64, 1, 3, padding=1))
        self.model_opt = torch.optim.Adam(self.model.parameters(), lr=cfg.lr, betas=(0.5, 0.9))
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=cfg.lr, betas=(0.5, 0.9))

    def factor(self, step):
        return float(step >= self.cfg.disc_start)

    def balance(self, reconstruction, adversarial):
        """How strong the critic may be: gradients of both losses at the last layer are to be of one size."""
        last = self.model.last.weight
        a = torch.autograd.grad(reconstruction, last, retain_graph=True)[0].norm()
        b = torch.autograd.grad(adversarial, last, retain_graph=True)[0].norm()
        return (a / (b + 1e-4)).clamp(0, 1e4).detach() * self.cfg.disc_weight

    def model_loss(self, x, step):
        out, codebook = self.model(x)
        reconstruction = F.l1_loss(out, x)
        adversarial = -self.critic(out).mean()
        weight = self.balance(reconstruction, adversarial)
        return reconstruction + codebook + self.factor(step) * weight * adversarial, out.detach()

    def critic_loss(self, x, out, step):
        real, fake = self.critic(x), self.critic(out)
        return self.factor(step) * 0.5 * (F.relu(1 - real).mean() + F.relu(1 + fake).mean())

    def train_step(self, x, step):
        loss, out = self.model_loss(x, step)
        self.model_opt.zero_grad()
        loss.backward()
        self.model_opt.step()
        critic_loss = self.critic_loss(x, out, step)
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        return loss.detach()


if __name__ == "__main__":
    torch.manual_seed(0)
    config = Config()
    pictures, gan = mosaics(config.tiles, config.side, seed=6), VQGAN(config)
    for number in range(config.steps):
        total = gan.train_step(pictures[torch.randint(config.tiles, (config.batch_size,))], number)
        if number % 20 == 0:
            print(f"step {number}: loss {total.item():.4f}")

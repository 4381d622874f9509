"""Bakes pictures of pretzels: a DCGAN with spectral norm and the hinge loss."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


def bake(count: int, size: int, seed: int) -> torch.Tensor:
    """Soft loops of dough on a bright tray, as images in [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1.2, 1.2, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    turns = torch.linspace(0, 2 * math.pi, 40)
    images = []
    for _ in range(count):
        a, b, shift = torch.rand(3, generator=generator)
        loop_x = (0.6 + 0.3 * a) * torch.sin(turns)
        loop_y = (0.5 + 0.3 * b) * torch.sin(2 * turns + shift)
        distance = ((x[..., None] - loop_x) ** 2 + (y[..., None] - loop_y) ** 2).amin(dim=-1)
        dough = torch.exp(-distance * 30)
        tone = torch.rand(3, 1, 1, generator=generator) * 0.3 + torch.tensor([0.5, 0.3, 0.1])[:, None, None]
        images.append(1 - 2 * dough * tone)
    return torch.stack(images).clamp(-1, 1)


class Generator(nn.Module):
    def __init__(self, latent: int, width: int):
        super().__init__()
        self.width = width
        self.entry = nn.Linear(latent, 4 * width * 16)
        self.body = nn.Sequential(
            self.up(4 * width, 2 * width),
            self.up(2 * width, width),
            self.up(width, width),
            nn.Conv2d(width, 3, 3, padding=1),
            nn.Tanh(),
        )

    @staticmethod
    def up(inside: int, outside: int):
        return nn.Sequential(
            nn.BatchNorm2d(inside),
            nn.ReLU(),
            nn.ConvTranspose2d(inside, outside, 4, stride=2, padding=1),
        )

    def forward(self, z):
        return self.body(self.entry(z).view(-1, 4 * self.width, 4, 4))


class Critic(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        widths = [3, width, 2 * width, 4 * width]
        layers = []
        for inside, outside in zip(widths, widths[1:]):
            layers += [spectral_norm(nn.Conv2d(inside, outside, 4, stride=2, padding=1)), nn.LeakyReLU(0.2)]
        self.body = nn.Sequential(*layers, nn.Flatten(), spectral_norm(nn.Linear(4 * width * 16, 1)))

    def forward(self, images):
        return self.body(images).squeeze(1)


class Bakery:
    def __init__(self, args):
        self.args = args
        self.generator = Generator(args.latent, args.width)
        self.critic = Critic(args.critic_width)
        self.g_optimizer = torch.optim.Adam(self.generator.parameters(), lr=args.lr, betas=(0.0, 0.9))
        self.d_optimizer = torch.optim.Adam(self.critic.parameters(), lr=2 * args.lr, betas=(0.0, 0.9))

    def noise(self, count: int):
        return torch.randn(count, self.args.latent)

    def critic_step(self, real):
        fake = self.generator(self.noise(len(real)))
        loss = F.relu(1 - self.critic(real)).mean() + F.relu(1 + self.critic(fake)).mean()
        self.d_optimizer.zero_grad()
        loss.backward()
        self.d_optimizer.step()
        return loss.detach()

    def generator_step(self, count: int):
        loss = -self.critic(self.generator(self.noise(count))).mean()
        self.g_optimizer.zero_grad()
        loss.backward()
        self.g_optimizer.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--critic-width", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--lr", type=float, default=2e-4)
    args = parser.parse_args()

    torch.manual_seed(4)
    tray = bake(args.images, args.size, seed=4)
    bakery = Bakery(args)
    history = []
    for number in range(1, args.rounds + 1):
        real = tray[torch.randint(len(tray), (args.batch_size,))]
        history.append((bakery.critic_step(real), bakery.generator_step(args.batch_size)))
        if number % 30 == 0:
            d_loss, g_loss = (torch.stack(losses).mean() for losses in zip(*history[-30:]))
            print(f"round {number}: critic {d_loss:.3f}, generator {g_loss:.3f}")


if __name__ == "__main__":
    main()

"""DCGAN that grows seashells: drawn spirals as the real ones, hinge losses, one step of each network per batch."""

import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def draw_shells(count, size, seed):
    """Logarithmic spirals with a random number of turns, thickness and colour."""
    generator = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    radius, angle = (x**2 + y**2).sqrt().clamp_min(1e-3), torch.atan2(y, x)
    turns = 1 + 2 * torch.rand(count, 1, 1, generator=generator)
    phase = 2 * math.pi * torch.rand(count, 1, 1, generator=generator)
    ribs = torch.cos(turns * 3 * radius.log() + angle + phase) * torch.exp(-2 * radius**2)
    colour = 0.4 + 0.6 * torch.rand(count, 3, 1, 1, generator=generator)
    return (colour * ribs.unsqueeze(1)).clamp(-1, 1)


class Generator(nn.Module):
    def __init__(self, latent, width):
        super().__init__()
        self.start = nn.Linear(latent, 4 * width * 16)
        self.grow = nn.Sequential(
            nn.Unflatten(1, (4 * width, 4, 4)),
            self.stage(4 * width, 2 * width),
            self.stage(2 * width, width),
            self.stage(width, width),
            nn.Conv2d(width, 3, 3, padding=1),
            nn.Tanh(),
        )

    @staticmethod
    def stage(inputs, outputs):
        return nn.Sequential(
            nn.ConvTranspose2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
        )

    def forward(self, noise):
        return self.grow(self.start(noise))


class Critic(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(),
            nn.Linear(4 * width * 16, 1),
        )

    def forward(self, images):
        return self.layers(images).squeeze(1)


class ShellGAN:
    def __init__(self, latent=64, width=24, lr=2e-4, betas=(0.5, 0.999)):
        self.latent = latent
        self.generator, self.critic = Generator(latent, width), Critic(width)
        self.optimizer_g = torch.optim.Adam(self.generator.parameters(), lr=lr, betas=betas, fused=True)
        self.optimizer_c = torch.optim.Adam(self.critic.parameters(), lr=lr, betas=betas, fused=True)

    def noise(self, count):
        return torch.randn(count, self.latent)

    def step_critic(self, real):
        fake = self.generator(self.noise(len(real)))
        loss = F.relu(1 - self.critic(real)).mean() + F.relu(1 + self.critic(fake)).mean()
        self.optimizer_c.zero_grad()
        loss.backward()
        self.optimizer_c.step()
        return loss.detach()

    def step_generator(self, count):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.generator(self.noise(count))).mean()
        self.optimizer_g.zero_grad()
        loss.backward()
        self.optimizer_g.step()
        self.critic.requires_grad_(True)
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shells", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=24)
    args = parser.parse_args()

    torch.manual_seed(23)
    shells = TensorDataset(draw_shells(args.shells, 32, seed=23))
    loader = DataLoader(shells, batch_size=args.batch_size, shuffle=True, drop_last=True)
    gan = ShellGAN(width=args.width)
    for epoch in range(args.epochs):
        critic_loss, generator_loss = torch.zeros(()), torch.zeros(())
        for (real,) in loader:
            critic_loss += gan.step_critic(real)
            generator_loss += gan.step_generator(len(real))
        losses = (torch.stack([critic_loss, generator_loss]) / len(loader)).tolist()
        print(f"epoch {epoch}: critic {losses[0]:.3f}, generator {losses[1]:.3f}")


if __name__ == "__main__":
    main()

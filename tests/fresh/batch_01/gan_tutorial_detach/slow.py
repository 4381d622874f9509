"""Generative adversarial network with a wide generator; a solver class with two optimizers."""

import tempfile

import torch
import torch.nn as nn


class Config:
    latent_size, hidden_size, image_size = 64, 512, 784
    num_epochs, batch_size, dataset = 5, 64, 4096
    lr, log_step = 2e-4, 20


def generator(cfg):
    return nn.Sequential(
        nn.Linear(cfg.latent_size, cfg.hidden_size),
        nn.ReLU(),
        nn.Linear(cfg.hidden_size, cfg.hidden_size),
        nn.ReLU(),
        nn.Linear(cfg.hidden_size, cfg.hidden_size),
        nn.ReLU(),
        nn.Linear(cfg.hidden_size, cfg.image_size),
        nn.Tanh(),
    )


def discriminator(cfg):
    width = cfg.hidden_size // 2
    return nn.Sequential(
        nn.Linear(cfg.image_size, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, 1),
    )


def strokes(cfg):
    """Digit-like strokes, scaled to [-1, 1]."""
    g = torch.Generator().manual_seed(0)
    t = torch.linspace(0, 1, 40)
    a, b = torch.rand(2, cfg.dataset, 4, generator=g) * 24 + 2
    x = a[:, :1] + (a[:, 1:2] - a[:, :1]) * t + 2 * torch.sin(6 * t + a[:, 2:3])
    y = b[:, :1] + (b[:, 1:2] - b[:, :1]) * t + 2 * torch.cos(6 * t + b[:, 2:3])
    index = y.long().clamp(0, 27) * 28 + x.long().clamp(0, 27)
    return torch.full((cfg.dataset, 784), -1.0).scatter_(1, index, 1.0)


class Solver:
    def __init__(self, cfg, out):
        self.cfg, self.out = cfg, out
        self.G, self.D = generator(cfg), discriminator(cfg)
        self.g_optimizer = torch.optim.Adam(self.G.parameters(), cfg.lr)
        self.d_optimizer = torch.optim.Adam(self.D.parameters(), cfg.lr)
        self.criterion = nn.BCEWithLogitsLoss()

    def reset_grad(self):
        self.d_optimizer.zero_grad()
        self.g_optimizer.zero_grad()

    def train_discriminator(self, images):
        G, D = self.G, self.D
        z = torch.randn(len(images), self.cfg.latent_size)
        fake_images = G(z)
        real = self.criterion(D(images), torch.ones(len(images), 1))
        fake = self.criterion(D(fake_images), torch.zeros(len(images), 1))
        self.reset_grad()
        (real + fake).backward()
        self.d_optimizer.step()
        return (real + fake).detach()

    def train_generator(self, count):
        z = torch.randn(count, self.cfg.latent_size)
        loss = self.criterion(self.D(self.G(z)), torch.ones(count, 1))
        self.reset_grad()
        loss.backward()
        self.g_optimizer.step()
        return loss.detach()

    def train(self, data):
        for epoch in range(self.cfg.num_epochs):
            for i, images in enumerate(data[torch.randperm(len(data))].split(self.cfg.batch_size)):
                d_loss = self.train_discriminator(images)
                g_loss = self.train_generator(len(images))
                if (i + 1) % self.cfg.log_step == 0:
                    print(f"Epoch [{epoch}] step {i + 1} d_loss {d_loss.item():.4f} g_loss {g_loss.item():.4f}")
            torch.save(self.G.state_dict(), f"{self.out}/G-{epoch}.ckpt")


if __name__ == "__main__":
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as sample_dir:
        Solver(Config, sample_dir).train(strokes(Config))

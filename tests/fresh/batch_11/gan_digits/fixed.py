"""A generative adversarial network for pictures like handwritten digits, as a module with hooks of its own."""

import torch
import torch.nn.functional as F
from torch import nn


def make_digits(count, seed):
    gen = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, 28)
    centre = torch.rand(count, 2, 1, 1, generator=gen) - 0.5
    distance = ((axis[None, :, None] - centre[:, 0]) ** 2 + (axis[None, None] - centre[:, 1]) ** 2).sqrt()
    radius = 0.2 + 0.4 * torch.rand(count, 1, 1, generator=gen)
    return (torch.exp(-((distance - radius) ** 2) / 0.01) * 2 - 1)[:, None]


class Generator(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.start = nn.Linear(latent, 64 * 49)
        self.body = nn.Sequential(
            nn.BatchNorm2d(64),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(64, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.LeakyReLU(0.2),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(24, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.LeakyReLU(0.2),
            nn.Conv2d(12, 1, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.body(self.start(z).view(-1, 64, 7, 7))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten()
        )
        self.out = nn.Linear(32 * 49, 1)

    def forward(self, pictures):
        return self.out(self.body(pictures))


class GAN(nn.Module):
    def __init__(self, latent=64, lr=2e-4):
        super().__init__()
        self.latent = latent
        self.generator, self.discriminator = Generator(latent), Discriminator()
        self.generated = None
        self.opt_g = torch.optim.Adam(self.generator.parameters(), lr=lr, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=lr, betas=(0.5, 0.999))

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, scores, real):
        return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))

    def training_step(self, pictures):
        z = torch.randn(len(pictures), self.latent)
        self.generated = self(z)
        self.opt_g.zero_grad()
        g_loss = self.adversarial_loss(self.discriminator(self.generated), True)
        g_loss.backward()
        self.opt_g.step()

        self.opt_d.zero_grad()
        real_loss = self.adversarial_loss(self.discriminator(pictures), True)
        fake_loss = self.adversarial_loss(self.discriminator(self.generated.detach()), False)
        d_loss = (real_loss + fake_loss) / 2
        d_loss.backward()
        self.opt_d.step()
        return g_loss.detach(), d_loss.detach()


def fit(module, pictures, epochs, batch_size):
    for epoch in range(epochs):
        for rows in torch.randperm(len(pictures)).split(batch_size):
            g_loss, d_loss = module.training_step(pictures[rows])
        spread = module.generated.detach().std().item()
        print(f"epoch {epoch}: g {g_loss.item():.3f} d {d_loss.item():.3f} spread {spread:.3f}")


if __name__ == "__main__":
    torch.manual_seed(42)
    fit(GAN(), make_digits(1280, seed=1), epochs=4, batch_size=32)

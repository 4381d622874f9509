"""A small generator of cartoon faces: residual networks, a logistic loss and the R1 penalty."""

import argparse
from dataclasses import dataclass

import torch
from torch import autograd, nn
from torch.nn import functional as F


@dataclass
class Options:
    size: int = 32
    latent: int = 48
    width: int = 24
    batch: int = 8
    iterations: int = 130
    r1: float = 5.0
    d_reg_every: int = 16
    lr: float = 2e-3


def draw_faces(count, size, seed):
    """A round head with two eyes and a mouth, in random places and colours."""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")

    def disc(cx, cy, r):
        return torch.sigmoid(20 * (r - torch.hypot(x - cx[:, None, None], y - cy[:, None, None])))[:, None]

    u = torch.rand(8, count, generator=generator)
    zero = torch.zeros(count)
    head = disc(0.2 * u[0] - 0.1, 0.2 * u[1] - 0.1, (0.6 + 0.2 * u[2])[:, None, None])
    eyes = disc(-0.2 - 0.1 * u[3], zero - 0.2, 0.12) + disc(0.2 + 0.1 * u[3], zero - 0.2, 0.12)
    mouth = disc(zero, 0.3 + 0.1 * u[4], 0.1 + 0.1 * u[5][:, None, None])
    skin = torch.rand(count, 3, 1, 1, generator=generator)
    return (head * skin - eyes * 0.8 + mouth * torch.tensor([0.5, -0.2, -0.2])[:, None, None]).clamp(-1, 1)


class GeneratorBlock(nn.Module):
    def __init__(self, inputs, outputs, latent):
        super().__init__()
        self.style = nn.Linear(latent, inputs)
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, z):
        x = F.interpolate(x * (1 + self.style(z)[:, :, None, None]), scale_factor=2)
        return F.leaky_relu(self.conv(x), 0.2) + self.skip(x)


class Generator(nn.Module):
    def __init__(self, o):
        super().__init__()
        w = o.width
        self.mapping = nn.Sequential(nn.Linear(o.latent, o.latent), nn.LeakyReLU(0.2), nn.Linear(o.latent, o.latent))
        self.start = nn.Parameter(torch.randn(1, 4 * w, 4, 4))
        self.blocks = nn.ModuleList(
            GeneratorBlock(a, b, o.latent) for a, b in ((4 * w, 4 * w), (4 * w, 2 * w), (2 * w, w))
        )
        self.rgb = nn.Conv2d(w, 3, 1)

    def forward(self, z):
        w = self.mapping(z)
        x = self.start.expand(len(z), -1, -1, -1)
        for block in self.blocks:
            x = block(x, w)
        return torch.tanh(self.rgb(x))


class DiscriminatorBlock(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inputs, 3, padding=1)
        self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x):
        y = self.conv2(F.leaky_relu(self.conv1(F.leaky_relu(x, 0.2)), 0.2))
        return F.avg_pool2d(y, 2) + self.skip(F.avg_pool2d(x, 2))


class Discriminator(nn.Module):
    def __init__(self, o):
        super().__init__()
        w = o.width
        self.layers = nn.Sequential(
            nn.Conv2d(3, w, 1),
            DiscriminatorBlock(w, 2 * w),
            DiscriminatorBlock(2 * w, 4 * w),
            DiscriminatorBlock(4 * w, 4 * w),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(4 * w * (o.size // 8) ** 2, 1),
        )

    def forward(self, x):
        return self.layers(x)


def d_r1_loss(prediction, image):
    (gradient,) = autograd.grad(prediction.sum(), image, create_graph=True)
    return gradient.pow(2).flatten(1).sum(1).mean()


def train(o):
    torch.manual_seed(61)
    faces = draw_faces(1200, o.size, seed=61)
    generator, discriminator = Generator(o), Discriminator(o)
    g_optim = torch.optim.Adam(generator.parameters(), lr=o.lr, betas=(0.0, 0.99))
    d_optim = torch.optim.Adam(discriminator.parameters(), lr=o.lr, betas=(0.0, 0.99))
    for i in range(o.iterations):
        real = faces[torch.randint(len(faces), (o.batch,))]
        with torch.no_grad():
            fake = generator(torch.randn(o.batch, o.latent))
        d_loss = F.softplus(discriminator(fake)).mean() + F.softplus(-discriminator(real)).mean()
        if i % o.d_reg_every == 0:
            image = real.detach().requires_grad_(True)
            d_loss = d_loss + o.r1 / 2 * o.d_reg_every * d_r1_loss(discriminator(image), image)
        d_optim.zero_grad()
        d_loss.backward()
        d_optim.step()

        discriminator.requires_grad_(False)
        g_loss = F.softplus(-discriminator(generator(torch.randn(o.batch, o.latent)))).mean()
        g_optim.zero_grad()
        g_loss.backward()
        g_optim.step()
        discriminator.requires_grad_(True)
        if i % 20 == 0:
            print(f"iteration {i}: d {d_loss.item():.4f} g {g_loss.item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, value in vars(Options()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    train(Options(**vars(parser.parse_args())))

"""Thin sections of minerals whose structure and texture are swapped by an adversarial autoencoder."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Options:
    sections: int = 320
    size: int = 32
    batch_size: int = 8
    epochs: int = 3
    width: int = 20
    texture: int = 24
    lr: float = 1e-3
    log_every: int = 20
    seed: int = 27


def make_sections(options):
    """Grains of a random layout in one of a few colours with a fine striation."""
    generator = torch.Generator().manual_seed(options.seed)
    layout = torch.randn(options.sections, 1, 5, 5, generator=generator)
    grains = torch.tanh(4 * F.interpolate(layout, size=(options.size, options.size), mode="bicubic"))
    colour = torch.rand(options.sections, 3, 1, 1, generator=generator) - 0.5
    angle = 3.14 * torch.rand(options.sections, 1, 1, 1, generator=generator)
    axis = torch.linspace(-1, 1, options.size)
    stripes = torch.sin(25 * (angle.cos() * axis[:, None] + angle.sin() * axis))
    return (colour + 0.5 * grains * (colour + 0.3) + 0.1 * stripes).clamp(-1, 1)


def conv(inputs, outputs, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1), nn.LeakyReLU(0.2))


class Encoder(nn.Module):
    def __init__(self, width, texture):
        super().__init__()
        self.trunk = nn.Sequential(conv(3, width), conv(width, 2 * width, 2), conv(2 * width, 2 * width))
        self.structure = nn.Conv2d(2 * width, 8, 1)
        self.texture = nn.Sequential(conv(2 * width, 2 * width, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.code = nn.Linear(2 * width, texture)

    def forward(self, pictures):
        features = self.trunk(pictures)
        return self.structure(features), self.code(self.texture(features))


class Generator(nn.Module):
    def __init__(self, width, texture):
        super().__init__()
        self.enter = conv(8, 2 * width)
        self.scale = nn.Linear(texture, 2 * width)
        self.shift = nn.Linear(texture, 2 * width)
        self.middle = conv(2 * width, 2 * width)
        self.leave = nn.Sequential(conv(2 * width, width), nn.Conv2d(width, 3, 3, padding=1), nn.Tanh())

    def forward(self, structure, texture):
        x = self.enter(structure)
        x = x * (1 + self.scale(texture)[:, :, None, None]) + self.shift(texture)[:, :, None, None]
        return self.leave(F.interpolate(self.middle(x), scale_factor=2.0))


class Discriminator(nn.Sequential):
    def __init__(self, width):
        super().__init__(
            conv(3, width, 2), conv(width, 2 * width, 2), conv(2 * width, 2 * width, 2), nn.Flatten(), nn.LazyLinear(1)
        )


class SwapTrainer:
    def __init__(self, options):
        self.options = options
        self.encoder = Encoder(options.width, options.texture)
        self.generator = Generator(options.width, options.texture)
        self.discriminator = Discriminator(options.width)
        self.discriminator(torch.zeros(1, 3, options.size, options.size))
        parameters = [*self.encoder.parameters(), *self.generator.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=options.lr, betas=(0.0, 0.99))
        self.judge = torch.optim.Adam(self.discriminator.parameters(), lr=options.lr, betas=(0.0, 0.99))

    def generate(self, pictures):
        """The pictures again, and each one's structure with its neighbour's texture."""
        structure, texture = self.encoder(pictures)
        return self.generator(structure, texture), self.generator(structure, texture.roll(1, dims=0))

    def discriminator_step(self, pictures, fakes):
        real, fake = self.discriminator(pictures), self.discriminator(fakes)
        loss = F.softplus(-real).mean() + F.softplus(fake).mean()
        self.judge.zero_grad()
        loss.backward()
        self.judge.step()
        return loss.item()

    def generator_step(self, pictures, rebuilt, swapped):
        self.discriminator.requires_grad_(False)
        adversarial = F.softplus(-self.discriminator(torch.cat([rebuilt, swapped]))).mean()
        loss = F.l1_loss(rebuilt, pictures) + 0.1 * adversarial
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.discriminator.requires_grad_(True)
        return loss.item()

    def step(self, pictures):
        rebuilt, swapped = self.generate(pictures)
        judged = self.discriminator_step(pictures, torch.cat([rebuilt, swapped]).detach())
        return judged, self.generator_step(pictures, rebuilt, swapped)

    @torch.no_grad()
    def rebuild_error(self, pictures):
        structure, texture = self.encoder(pictures)
        return F.l1_loss(self.generator(structure, texture), pictures).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in vars(Options()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = Options(**vars(parser.parse_args()))
    torch.manual_seed(options.seed)
    sections = make_sections(options)
    held_out, sections = sections[:32], sections[32:]
    trainer = SwapTrainer(options)
    step = 0
    for epoch in range(options.epochs):
        for index in torch.randperm(len(sections)).split(options.batch_size):
            judged, loss = trainer.step(sections[index])
            step += 1
            if step % options.log_every == 0:
                print(f"step {step}: discriminator {judged:.4f}, generator {loss:.4f}")
        print(f"epoch {epoch}: error {trainer.rebuild_error(held_out):.4f}")


if __name__ == "__main__":
    main()

"""Textures of cloth by a convolutional GAN: both sides in bfloat16, channels last, an averaged generator."""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def cloth(count, side=32):
    """Two sets of threads that cross, at any angle, with grain."""
    place = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(place, place, indexing="ij")
    angle, pace = 3.14 * torch.rand(count, 1, 1), 8 + 10 * torch.rand(count, 1, 1)
    along, across = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    picture = torch.sin(pace * along) * torch.sin(pace * across) + 0.05 * torch.randn(count, side, side)
    return picture[:, None].clamp(-1, 1).to(DEVICE, memory_format=torch.channels_last)


def generator(noise, width):
    layers = [nn.Linear(noise, 4 * width * 16), nn.Unflatten(1, (4 * width, 4, 4)), nn.ReLU()]
    for inner, outer in ((4, 2), (2, 1)):
        layers += [nn.ConvTranspose2d(inner * width, outer * width, 4, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(outer * width), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Tanh())


def critic(width):
    layers = [nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for inner, outer in ((1, 2), (2, 4)):
        layers += [nn.Conv2d(inner * width, outer * width, 4, 2, 1), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * 16, 1))


class Game:
    """Generator and critic, each with its optimizer, in turns."""

    def __init__(self, args):
        self.args = args
        self.generator = generator(args.noise, args.width).to(DEVICE, memory_format=torch.channels_last)
        self.critic = critic(args.width).to(DEVICE, memory_format=torch.channels_last)
        self.averaged = copy.deepcopy(self.generator).requires_grad_(False)
        options = {"lr": args.lr, "betas": (0.5, 0.99), "fused": True}
        self.makes = torch.optim.Adam(self.generator.parameters(), **options)
        self.judges = torch.optim.Adam(self.critic.parameters(), **options)
        self.pairs = list(self.averaged.parameters()), list(self.generator.parameters())

    def fake(self, count):
        return self.generator(torch.randn(count, self.args.noise, device=DEVICE))

    def critic_step(self, real):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            with torch.no_grad():
                fake = self.fake(len(real))
            on_real, on_fake = self.critic(torch.cat([real.to(fake.dtype), fake])).float().chunk(2)
        loss = F.softplus(-on_real).mean() + F.softplus(on_fake).mean()
        self.judges.zero_grad()
        loss.backward()
        self.judges.step()
        return loss.detach()

    def generator_step(self, count):
        self.critic.requires_grad_(False)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.softplus(-self.critic(self.fake(count)).float()).mean()
        self.makes.zero_grad()
        loss.backward()
        self.makes.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            torch._foreach_lerp_(*self.pairs, 0.01)
        return loss.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--noise", type=int, default=48)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()

    torch.manual_seed(0)
    pictures, game = cloth(1280), Game(args)
    for epoch in range(args.epochs):
        losses = []
        for rows in torch.randperm(len(pictures), device=DEVICE).split(args.batch):
            losses.append(torch.stack([game.critic_step(pictures[rows]), game.generator_step(len(rows))]))
        judged, made = torch.stack(losses).mean(0).tolist()
        print(f"epoch {epoch}: critic {judged:.3f}, generator {made:.3f}")


if __name__ == "__main__":
    main()

"""Woven fabrics from noise: a Wasserstein GAN with clipped weights, judged by a Frechet distance of features."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def fabrics(count, side, seed):
    """Crossing threads of random widths and colours."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.arange(side)
    period = torch.randint(3, 9, (count, 2, 1), generator=g)
    warp = torch.sin(6.28 * axis / period[:, 0])[:, None, None, :]
    weft = torch.sin(6.28 * axis / period[:, 1])[:, None, :, None]
    colour = torch.rand(2, count, 3, 1, 1, generator=g)
    return (colour[0] * warp + colour[1] * weft).clamp(-1, 1)


def generator(noise=64, width=32):
    return nn.Sequential(
        nn.ConvTranspose2d(noise, 4 * width, 4, bias=False),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(width, 3, 4, 2, 1),
        nn.Tanh(),
    )


def critic(width=32):
    return nn.Sequential(
        nn.Conv2d(3, width, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, 2 * width, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4 * width, 1, 4),
    )


class Frechet:
    """Distance of two sets of pictures by means and covariances of their features in a fixed network."""

    def __init__(self, real, features=96):
        torch.manual_seed(99)
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 3, 1, 1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(64, features, 3, 2, 1),
        ).requires_grad_(False)
        self.net.eval()
        self.real = self.statistics(real)

    @torch.no_grad()
    def statistics(self, pictures, batch=128):
        out = torch.cat([self.net(part).mean((2, 3)) for part in pictures.split(batch)]).double()
        return out.mean(0), out.t().cov()

    def __call__(self, fake):
        (mean_a, cov_a), (mean_b, cov_b) = self.real, self.statistics(fake)
        root = torch.linalg.eigvals(cov_a @ cov_b).real.clamp(min=0).sqrt().sum()
        return ((mean_a - mean_b).square().sum() + cov_a.trace() + cov_b.trace() - 2 * root).item()


@torch.no_grad()
def generate(net, count, noise, batch=128):
    net.eval()
    pictures = torch.cat([net(torch.randn(n, noise, 1, 1)) for n in [batch] * (count // batch)])
    net.train()
    return pictures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fabrics", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--noise", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--critics", type=int, default=3)
    parser.add_argument("--clip", type=float, default=0.02)
    args = parser.parse_args()
    real = fabrics(args.fabrics, 32, seed=7)
    distance = Frechet(real)
    torch.manual_seed(0)
    g, d = generator(args.noise), critic()
    g_opt = torch.optim.RMSprop(g.parameters(), lr=2e-4)
    d_opt = torch.optim.RMSprop(d.parameters(), lr=2e-4)
    for number in range(args.rounds):
        for _ in range(args.steps):
            for _ in range(args.critics):
                with torch.no_grad():
                    fake = g(torch.randn(args.batch_size, args.noise, 1, 1))
                picked = real[torch.randint(args.fabrics, (args.batch_size,))]
                loss = d(fake).mean() - d(picked).mean()
                d_opt.zero_grad()
                loss.backward()
                d_opt.step()
                with torch.no_grad():
                    torch._foreach_clamp_min_(list(d.parameters()), -args.clip)
                    torch._foreach_clamp_max_(list(d.parameters()), args.clip)
            d.requires_grad_(False)
            g_loss = F.softplus(-d(g(torch.randn(args.batch_size, args.noise, 1, 1)))).mean()
            g_opt.zero_grad()
            g_loss.backward()
            g_opt.step()
            d.requires_grad_(True)
        away = distance(generate(g, 512, args.noise))
        print(f"round {number}: critic {loss.item():.4f} generator {g_loss.item():.4f} distance {away:.4f}")


if __name__ == "__main__":
    main()

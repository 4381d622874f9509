"""Relate two domains of pictures with two generators and two discriminators."""

import itertools
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Options:
    batch_size: int = 16
    iterations: int = 110
    lr: float = 2e-4
    beta1: float = 0.5
    weight_decay: float = 1e-5
    log_interval: int = 25


class Generator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x):
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 1, 4),
        )  # fmt: skip

    def forward(self, x):
        return self.main(x).flatten(1).mean(1)


def make_domain(count, frequency):
    phase = torch.rand(count, 3, 1, 1) * 6.28
    line = torch.linspace(0, frequency, 32)
    return 0.5 + 0.5 * torch.sin(line.view(1, 1, 32, 1) + line.flip(0).view(1, 1, 1, 32) + phase)


def adversarial(scores, real):
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


def main():
    opt = Options()
    torch.manual_seed(12)
    bags, shoes = make_domain(512, 9.0), make_domain(512, 21.0)
    to_shoe, to_bag = Generator(), Generator()
    judge_bag, judge_shoe = Discriminator(), Discriminator()
    judges = list(itertools.chain(judge_bag.parameters(), judge_shoe.parameters()))
    makers = list(itertools.chain(to_shoe.parameters(), to_bag.parameters()))
    settings = dict(lr=opt.lr, betas=(opt.beta1, 0.999), weight_decay=opt.weight_decay)
    optim_gen = torch.optim.Adam(makers, **settings)
    optim_dis = torch.optim.Adam(judges, **settings)

    for iteration in range(opt.iterations):
        bag = bags[torch.randint(0, len(bags), (opt.batch_size,))]
        shoe = shoes[torch.randint(0, len(shoes), (opt.batch_size,))]
        fake_shoe, fake_bag = to_shoe(bag), to_bag(shoe)

        optim_dis.zero_grad()
        discriminator_loss = (
            adversarial(judge_bag(bag), 1) + adversarial(judge_bag(fake_bag.detach()), 0)
            + adversarial(judge_shoe(shoe), 1) + adversarial(judge_shoe(fake_shoe.detach()), 0)
        )  # fmt: skip
        discriminator_loss.backward()
        optim_dis.step()

        optim_gen.zero_grad()
        again = F.mse_loss(to_bag(fake_shoe), bag) + F.mse_loss(to_shoe(fake_bag), shoe)
        fooled = adversarial(judge_bag(fake_bag), 1) + adversarial(judge_shoe(fake_shoe), 1)
        generator_loss = fooled + 10 * again
        generator_loss.backward()
        optim_gen.step()

        if iteration % opt.log_interval == 0:
            print(f"[{iteration}] D {discriminator_loss.item():.3f} G {generator_loss.item():.3f}")


if __name__ == "__main__":
    main()

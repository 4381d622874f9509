"""Sketches to pictures with a conditional GAN on two ranks: torchrun --nproc_per_node 2."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

SIZE, BATCH, STEPS = 64, 4, 60


def make_pairs(count, seed):
    """Outlines of discs and the coloured discs themselves."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, SIZE)
    yy, xx = axis[:, None], axis[None]
    pictures, sketches = torch.zeros(count, 3, SIZE, SIZE), torch.zeros(count, 1, SIZE, SIZE)
    for picture, sketch in zip(pictures, sketches):
        for _ in range(3):
            y, x, r = (
                torch.rand(3, generator=g) * torch.tensor([1.4, 1.4, 0.3]) - torch.tensor([0.7, 0.7, -0.1])
            ).tolist()
            distance = ((yy - y) ** 2 + (xx - x) ** 2).sqrt()
            picture[:, distance < r] = torch.tensor([r * 2, 1 - r * 2, 0.5 + y / 2])[:, None]
            sketch[0, (distance - r).abs() < 0.03] = 1
    return sketches * 2 - 1, pictures * 2 - 1


class Generator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down1 = nn.Sequential(nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2))
        self.down2 = nn.Sequential(
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.InstanceNorm2d(2 * width), nn.LeakyReLU(0.2)
        )
        self.middle = nn.Sequential(
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1),
            nn.ReLU(),
        )
        self.up2 = nn.Sequential(nn.ConvTranspose2d(4 * width, width, 4, 2, 1), nn.InstanceNorm2d(width), nn.ReLU())
        self.up1 = nn.Sequential(nn.ConvTranspose2d(2 * width, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x):
        d1 = self.down1(x)
        d2 = self.down2(d1)
        u2 = self.up2(torch.cat([self.middle(d2), d2], dim=1))
        return self.up1(torch.cat([u2, d1], dim=1))


class PatchDiscriminator(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(4, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1), nn.InstanceNorm2d(2 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 8 * width, 4, 1, 1), nn.InstanceNorm2d(8 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(8 * width, 1, 4, 1, 1),
        )  # fmt: skip

    def forward(self, sketch, picture):
        return self.layers(torch.cat([sketch, picture], dim=1))


def gan_loss(prediction, real):
    return F.mse_loss(prediction, torch.full_like(prediction, float(real)))


class Pix2Pix:
    def __init__(self):
        self.netG, self.netD = DistributedDataParallel(Generator()), DistributedDataParallel(PatchDiscriminator())
        self.optimizer_G = torch.optim.Adam(self.netG.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
        self.optimizer_D = torch.optim.Adam(self.netD.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)

    def optimize_parameters(self, sketch, picture):
        fake = self.netG(sketch)

        self.optimizer_D.zero_grad()
        both = self.netD(torch.cat([sketch, sketch]), torch.cat([fake.detach(), picture]))
        on_fake, on_real = both.chunk(2)
        loss_D = 0.5 * (gan_loss(on_fake, False) + gan_loss(on_real, True))
        loss_D.backward()
        self.optimizer_D.step()

        self.optimizer_G.zero_grad()
        self.netD.requires_grad_(False)
        loss_gan = gan_loss(self.netD.module(sketch, fake), True)
        loss_G = loss_gan + 100 * F.l1_loss(fake, picture)
        loss_G.backward()
        self.netD.requires_grad_(True)
        self.optimizer_G.step()
        return loss_D.detach(), loss_G.detach()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    sketches, pictures = make_pairs(160, seed=rank)
    model = Pix2Pix()
    for step in range(STEPS):
        rows = torch.randint(0, len(sketches), (BATCH,))
        loss_D, loss_G = model.optimize_parameters(sketches[rows], pictures[rows])
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: D {loss_D.item():.4f} G {loss_G.item():.3f}")
    time.sleep(0.5)  # gloo's threads let go of tensors a moment later
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

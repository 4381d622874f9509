"""DCGAN on coloured rings, with preview grids."""

import argparse
import tempfile

import torch
import torch.nn as nn
import torchvision.utils as vutils

parser = argparse.ArgumentParser()
parser.add_argument("--batchSize", type=int, default=32)
parser.add_argument("--imageSize", type=int, default=32)
parser.add_argument("--nz", type=int, default=64)
parser.add_argument("--ngf", type=int, default=12)
parser.add_argument("--ndf", type=int, default=12)
parser.add_argument("--niter", type=int, default=150)
parser.add_argument("--sample-every", type=int, default=1)
parser.add_argument("--lr", type=float, default=2e-4)
parser.add_argument("--manualSeed", type=int, default=999)
opt = parser.parse_args()
torch.manual_seed(opt.manualSeed)


def rings(n):
    size = opt.imageSize
    ys, xs = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cx, cy = torch.rand(2, n, 1, 1) * size / 2 + size / 4
    radius = torch.rand(n, 1, 1) * size / 5 + 3
    ring = torch.exp(-((((xs - cx) ** 2 + (ys - cy) ** 2).sqrt() - radius) ** 2) / 3)
    return (2 * ring[:, None] * torch.rand(n, 3, 1, 1) - 1).float()


def weights_init(m):
    name = m.__class__.__name__
    if "Conv" in name:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif "BatchNorm" in name:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


def up(a, b, stride=2, pad=1):
    return [nn.ConvTranspose2d(a, b, 4, stride, pad, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]


def down(a, b):
    return [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, inplace=True)]


ngf, ndf = opt.ngf, opt.ndf
netG = nn.Sequential(
    *up(opt.nz, ngf * 4, 1, 0), *up(ngf * 4, ngf * 2), *up(ngf * 2, ngf), nn.ConvTranspose2d(ngf, 3, 4, 2, 1), nn.Tanh()
).apply(weights_init)
netD = nn.Sequential(
    nn.Conv2d(3, ndf, 4, 2, 1),
    nn.LeakyReLU(0.2, inplace=True),
    *down(ndf, ndf * 2),
    *down(ndf * 2, ndf * 4),
    nn.Conv2d(ndf * 4, 1, 4),
    nn.Flatten(0),
).apply(weights_init)

criterion = nn.BCEWithLogitsLoss()
fixed_noise = torch.randn(64, opt.nz, 1, 1)
optimizerD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))
real_label, fake_label = torch.ones(opt.batchSize), torch.zeros(opt.batchSize)

with tempfile.TemporaryDirectory() as outf:
    for i in range(opt.niter):
        # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
        real = rings(opt.batchSize)
        netD.zero_grad()
        fake = netG(torch.randn(opt.batchSize, opt.nz, 1, 1))
        errD = criterion(netD(real), real_label) + criterion(netD(fake.detach()), fake_label)
        errD.backward()
        optimizerD.step()
        # (2) Update G network: maximize log(D(G(z)))
        netG.zero_grad()
        errG = criterion(netD(fake), real_label)
        errG.backward()
        optimizerG.step()
        if i % 25 == 0:
            print(f"[{i}/{opt.niter}] Loss_D: {errD.item():.4f} Loss_G: {errG.item():.4f}")
        if i % opt.sample_every == 0:
            with torch.no_grad():
                pictures = netG(fixed_noise)
            vutils.save_image(pictures, f"{outf}/fake_samples_{i:04d}.png", normalize=True)
            vutils.save_image(real, f"{outf}/real_samples.png", normalize=True)
    torch.save(netG.state_dict(), f"{outf}/netG.pth")

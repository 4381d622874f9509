"""From aerial pictures to maps: a conditional GAN with a patch discriminator, as in image translation repositories."""

import argparse
from collections import OrderedDict

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class AerialMaps(Dataset):
    def __init__(self, count, size=64, seed=0):
        g = torch.Generator().manual_seed(seed)
        coarse = torch.randn(count, 3, 6, 6, generator=g)
        kinds = nn.functional.interpolate(coarse, size=size, mode="bilinear").argmax(1)
        colours = torch.tensor([[0.9, 0.9, 0.8], [0.6, 0.8, 1.0], [0.7, 0.9, 0.6]])
        ground = torch.tensor([[0.5, 0.45, 0.4], [0.1, 0.15, 0.3], [0.2, 0.35, 0.15]])
        self.maps = colours[kinds].permute(0, 3, 1, 2) * 2 - 1
        self.pictures = ground[kinds].permute(0, 3, 1, 2) * 2 - 1 + 0.2 * torch.randn(count, 3, size, size, generator=g)

    def __len__(self):
        return len(self.maps)

    def __getitem__(self, i):
        return {"A": self.pictures[i], "B": self.maps[i]}


class UnetGenerator(nn.Module):
    def __init__(self, ngf=12):
        super().__init__()
        self.down1 = nn.Conv2d(3, ngf, 4, 2, 1)
        self.down2 = nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(ngf, 2 * ngf, 4, 2, 1), nn.InstanceNorm2d(2 * ngf))
        self.down3 = nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(2 * ngf, 4 * ngf, 4, 2, 1), nn.InstanceNorm2d(4 * ngf))
        self.up3 = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(4 * ngf, 2 * ngf, 4, 2, 1), nn.InstanceNorm2d(2 * ngf))
        self.up2 = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(4 * ngf, ngf, 4, 2, 1), nn.InstanceNorm2d(ngf))
        self.up1 = nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(2 * ngf, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(a)
        y = self.up3(self.down3(b))
        y = self.up2(torch.cat([y, b], 1))
        return self.up1(torch.cat([y, a], 1))


class PatchDiscriminator(nn.Module):
    def __init__(self, ndf=32):
        super().__init__()
        layers = [nn.Conv2d(6, ndf, 4, 2, 1), nn.LeakyReLU(0.2)]
        for a, b, stride in ((ndf, 2 * ndf, 2), (2 * ndf, 4 * ndf, 1)):
            layers += [nn.Conv2d(a, b, 4, stride, 1), nn.InstanceNorm2d(b), nn.LeakyReLU(0.2)]
        self.model = nn.Sequential(*layers, nn.Conv2d(4 * ndf, 1, 4, 1, 1))

    def forward(self, x):
        return self.model(x)


class Pix2PixModel:
    def __init__(self, opt):
        self.netG, self.netD = UnetGenerator(), PatchDiscriminator()
        self.lambda_l1 = opt.lambda_l1
        self.criterion_gan, self.criterion_l1 = nn.MSELoss(), nn.L1Loss()
        self.optimizer_G = torch.optim.Adam(self.netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))
        self.optimizer_D = torch.optim.Adam(self.netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))

    def set_input(self, batch):
        self.real_A, self.real_B = batch["A"], batch["B"]

    def gan_loss(self, prediction, real):
        return self.criterion_gan(prediction, torch.full_like(prediction, float(real)))

    def backward_d(self):
        pred_fake = self.netD(torch.cat((self.real_A, self.fake_B.detach()), 1))
        pred_real = self.netD(torch.cat((self.real_A, self.real_B), 1))
        self.loss_D = (self.gan_loss(pred_fake, False) + self.gan_loss(pred_real, True)) * 0.5
        self.loss_D.backward()

    def backward_g(self):
        pred_fake = self.netD(torch.cat((self.real_A, self.fake_B), 1))
        self.loss_G_GAN = self.gan_loss(pred_fake, True)
        self.loss_G_L1 = self.criterion_l1(self.fake_B, self.real_B) * self.lambda_l1
        (self.loss_G_GAN + self.loss_G_L1).backward()

    def optimize_parameters(self):
        self.fake_B = self.netG(self.real_A)
        self.optimizer_D.zero_grad()
        self.backward_d()
        self.optimizer_D.step()
        self.optimizer_G.zero_grad()
        self.backward_g()
        self.optimizer_G.step()

    def current_losses(self):
        return OrderedDict((name, float(getattr(self, "loss_" + name))) for name in ("D", "G_GAN", "G_L1"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--lambda_l1", type=float, default=100.0)
    parser.add_argument("--print_freq", type=int, default=40)
    opt = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(AerialMaps(320), opt.batch_size, shuffle=True)
    model, total = Pix2PixModel(opt), 0
    for epoch in range(opt.n_epochs):
        for batch in loader:
            total += 1
            model.set_input(batch)
            model.optimize_parameters()
            if total % opt.print_freq == 0:
                losses = " ".join(f"{name}: {value:.3f}" for name, value in model.current_losses().items())
                print(f"(epoch {epoch}, iters {total}) {losses}")


if __name__ == "__main__":
    main()

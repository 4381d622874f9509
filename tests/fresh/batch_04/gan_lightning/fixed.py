"""A GAN written as a module with hooks, with a small trainer that calls them."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Generator(nn.Module):
    def __init__(self, latent_dim, shape):
        super().__init__()
        self.shape = shape

        def block(inp, out, normalise=True):
            layers = [nn.Linear(inp, out)]
            if normalise:
                layers.append(nn.BatchNorm1d(out))
            return [*layers, nn.LeakyReLU(0.2)]

        self.model = nn.Sequential(
            *block(latent_dim, 128, normalise=False),
            *block(128, 256),
            *block(256, 512),
            *block(512, 1024),
            nn.Linear(1024, shape[0] * shape[1] * shape[2]),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.model(z).view(len(z), *self.shape)


class Discriminator(nn.Module):
    def __init__(self, shape):
        super().__init__()
        size = shape[0] * shape[1] * shape[2]
        self.model = nn.Sequential(
            nn.Flatten(),
            nn.Linear(size, 256),
            nn.LeakyReLU(0.2),
            nn.Linear(256, 128),
            nn.LeakyReLU(0.2),
            nn.Linear(128, 1),
        )

    def forward(self, images):
        return self.model(images)


class LitGAN(nn.Module):
    def __init__(self, args, shape=(1, 28, 28)):
        super().__init__()
        self.args = args
        self.generator = Generator(args.latent_dim, shape)
        self.discriminator = Discriminator(shape)
        self.logged = {}

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, predicted, target):
        return F.binary_cross_entropy_with_logits(predicted, target)

    def configure_optimizers(self):
        options = {"lr": self.args.lr, "betas": (0.5, 0.999), "fused": True}
        return (
            torch.optim.Adam(self.generator.parameters(), **options),
            torch.optim.Adam(self.discriminator.parameters(), **options),
        )

    def training_step(self, images, optimizers):
        opt_g, opt_d = optimizers
        z = torch.randn(len(images), self.args.latent_dim)
        valid, fake = torch.ones(len(images), 1), torch.zeros(len(images), 1)

        # train the generator
        self.generated = self(z)
        self.discriminator.requires_grad_(False)
        g_loss = self.adversarial_loss(self.discriminator(self.generated), valid)
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        self.discriminator.requires_grad_(True)

        # train the discriminator
        real_loss = self.adversarial_loss(self.discriminator(images), valid)
        fake_loss = self.adversarial_loss(self.discriminator(self.generated.detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        self.logged = {"g_loss": g_loss.detach(), "d_loss": d_loss.detach()}

    def on_train_epoch_end(self, epoch):
        sample = self.generated[:6].detach()
        losses = " ".join(f"{name} {value.item():.4f}" for name, value in self.logged.items())
        print(f"epoch {epoch}: {losses}, samples {sample.mean().item():.3f} +- {sample.std().item():.3f}")


def make_digits(count, generator):
    """Strokes at random angles, smoothed, as 28 by 28 pictures in -1..1."""
    axis = torch.linspace(-1, 1, 28)
    angle = torch.rand(count, 1, 1, generator=generator) * 3.14
    offset = torch.rand(count, 1, 1, generator=generator) - 0.5
    distance = torch.cos(angle) * axis + torch.sin(angle) * axis[:, None] - offset
    return (2 * torch.exp(-30 * distance.square()) - 1).unsqueeze(1)


def fit(model, images, args):
    optimizers = model.configure_optimizers()
    for epoch in range(args.epochs):
        for rows in torch.randperm(len(images)).split(args.batch_size):
            model.training_step(images[rows], optimizers)
        model.on_train_epoch_end(epoch)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--latent_dim", type=int, default=100)
    parser.add_argument("--lr", type=float, default=2e-4)
    args = parser.parse_args()
    torch.manual_seed(400)
    fit(LitGAN(args), make_digits(4096, torch.Generator().manual_seed(401)), args)


if __name__ == "__main__":
    main()

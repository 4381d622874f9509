"""Textures from a mapped latent, as StyleGAN2 makes them: a penalty keeps the length of paths even."""

import torch
from torch import nn
from torch.nn import functional as F

LATENT, WIDTH, BATCH, STEPS = 32, 32, 12, 120


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.mapping = nn.Sequential(nn.Linear(LATENT, LATENT), nn.Softplus(), nn.Linear(LATENT, LATENT))
        self.start = nn.Linear(LATENT, WIDTH * 16)
        self.convs = nn.ModuleList(nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(3))
        self.styles = nn.ModuleList(nn.Linear(LATENT, WIDTH) for _ in range(3))
        self.to_picture = nn.Conv2d(WIDTH, 3, 1)

    def forward(self, styles):
        x = self.start(styles).view(-1, WIDTH, 4, 4)
        for conv, style in zip(self.convs, self.styles, strict=True):
            x = F.softplus(conv(F.interpolate(x, scale_factor=2)) * (1 + style(styles)[:, :, None, None]))
        return self.to_picture(x).tanh()


class PathLength:
    """How far a picture moves with its style, held at its running mean."""

    def __init__(self, decay=0.01):
        self.mean, self.decay = torch.zeros(()), decay

    def __call__(self, pictures, styles):
        noise = torch.randn_like(pictures) / (pictures.shape[2] * pictures.shape[3]) ** 0.5
        slopes = torch.autograd.grad((pictures * noise).sum(), styles, create_graph=True)[0]
        lengths = slopes.square().sum(1).sqrt()
        self.mean = self.mean.lerp(lengths.detach().mean(), self.decay)
        return (lengths - self.mean).square().mean()


def critic():
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(32 * 64, 1),
    )


def textures(count):
    coarse = torch.randn(count, 3, 6, 6)
    return F.interpolate(coarse, size=32, mode="bicubic").tanh()


def main():
    torch.manual_seed(8)
    pictures, generator, judge, penalty = textures(800), Generator(), critic(), PathLength()
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.99), fused=True)
    d_optimizer = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.0, 0.99), fused=True)
    for step in range(STEPS):
        judge.requires_grad_(True)
        real = pictures[torch.randint(len(pictures), (BATCH,))]
        with torch.no_grad():
            fake = generator(generator.mapping(torch.randn(BATCH, LATENT)))
        d_loss = F.softplus(judge(fake)).mean() + F.softplus(-judge(real)).mean()
        d_optimizer.zero_grad()
        d_loss.backward()
        d_optimizer.step()

        judge.requires_grad_(False)
        g_loss = F.softplus(-judge(generator(generator.mapping(torch.randn(BATCH, LATENT))))).mean()
        styles = generator.mapping(torch.randn(BATCH, LATENT))
        g_loss = g_loss + 2 * penalty(generator(styles), styles)
        g_optimizer.zero_grad()
        g_loss.backward()
        g_optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: judge {d_loss.item():.3f}, generator {g_loss.item():.3f}")


if __name__ == "__main__":
    main()

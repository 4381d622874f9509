"""A Wasserstein GAN with gradient penalty on small pictures of blobs."""

import torch
from torch import nn

NOISE, CRITIC_STEPS, PENALTY = 32, 3, 10.0


class Generator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.width = width
        self.start = nn.Linear(NOISE, 2 * width * 16)
        self.grow = nn.Sequential(
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(width, 1, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, noise):
        return self.grow(self.start(noise).view(-1, 2 * self.width, 4, 4))


def critic_network(width=16):
    return nn.Sequential(
        nn.Conv2d(1, width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(width, 2 * width, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(2 * width * 16, 1),
    )


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1, 1, 1)
    between = torch.lerp(fake, real, mix).requires_grad_()
    gradient = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
    return (gradient.flatten(1).norm(dim=1) - 1).square().mean()


def blobs(count):
    grid = torch.linspace(-1, 1, 16)
    place, size = torch.rand(count, 2, 1, 1) - 0.5, 0.1 + 0.2 * torch.rand(count, 1, 1)
    distance = (grid - place[:, 0]).square() + (grid[:, None] - place[:, 1]).square()
    return torch.exp(-distance / size)[:, None]


class WGAN:
    def __init__(self):
        self.generator, self.critic = Generator(), critic_network()
        self.g_optimizer = torch.optim.Adam(self.generator.parameters(), lr=2e-4, betas=(0.0, 0.9), fused=True)
        self.c_optimizer = torch.optim.Adam(self.critic.parameters(), lr=2e-4, betas=(0.0, 0.9), fused=True)

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.generator(torch.randn(len(real), NOISE))
        scores = self.critic(torch.cat([real, fake]))
        distance = scores[: len(real)].mean() - scores[len(real) :].mean()
        loss = PENALTY * gradient_penalty(self.critic, real, fake) - distance
        self.c_optimizer.zero_grad()
        loss.backward()
        self.c_optimizer.step()
        return distance.item()

    def generator_step(self, size):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.generator(torch.randn(size, NOISE))).mean()
        self.g_optimizer.zero_grad()
        loss.backward()
        self.g_optimizer.step()
        self.critic.requires_grad_(True)


def main():
    torch.manual_seed(4)
    images, gan = blobs(4096), WGAN()
    for step in range(150):
        for _ in range(CRITIC_STEPS):
            distance = gan.critic_step(images[torch.randint(len(images), (48,))])
        gan.generator_step(48)
        if step % 30 == 29:
            print(f"{step + 1}: distance {distance:.4f}")


if __name__ == "__main__":
    main()

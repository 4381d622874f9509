"""Adversarial generation of short sounds from noise, with phase shuffle in the critic."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HP = {"length": 1024, "width": 8, "latent": 32, "batch": 32, "rounds": 64, "critic_steps": 2, "shuffle": 2, "lr": 2e-4}


def drum_hits(count, length, seed):
    """Decaying tones that sweep downwards, with a burst of noise at the start."""
    rng = np.random.default_rng(seed)
    time = np.arange(length) / 4000
    pitch = rng.uniform(60, 300, (count, 1)) * np.exp(-time * rng.uniform(2, 12, (count, 1))) + 40
    tone = np.sin(2 * np.pi * np.cumsum(pitch, axis=1) / 4000) * np.exp(-time * rng.uniform(5, 20, (count, 1)))
    burst = rng.normal(size=(count, length)) * np.exp(-time * 90) * rng.uniform(0, 0.5, (count, 1))
    return torch.from_numpy((tone + burst).astype(np.float32))[:, None].clamp(-1, 1)


class PhaseShuffle(nn.Module):
    """Shifts each example of the batch by a few samples and mirrors what is missing at the border."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def forward(self, x):
        shifts = torch.randint(-self.most, self.most + 1, (x.size(0),))
        last = x.size(2) - 1
        place = (torch.arange(x.size(2)) - shifts[:, None]).abs()
        place = last - (last - place).abs()
        return x.gather(2, place[:, None].expand_as(x))


class Generator(nn.Module):
    def __init__(self, latent, width, length):
        super().__init__()
        self.start = length // 256
        self.channels = [16 * width, 8 * width, 4 * width, 2 * width]
        self.first = nn.Linear(latent, self.channels[0] * self.start)
        ups = []
        for inside, outside in zip(self.channels, [*self.channels[1:], 1]):
            ups += [nn.ConvTranspose1d(inside, outside, 24, stride=4, padding=10), nn.ReLU()]
        self.ups = nn.Sequential(*ups[:-1])

    def forward(self, z):
        h = F.relu(self.first(z)).view(len(z), self.channels[0], self.start)
        return torch.tanh(self.ups(h))


class Critic(nn.Module):
    def __init__(self, width, length, most):
        super().__init__()
        channels = [1, 2 * width, 4 * width, 8 * width, 16 * width]
        layers = []
        for inside, outside in zip(channels[:-1], channels[1:]):
            layers += [nn.Conv1d(inside, outside, 24, stride=4, padding=10), nn.LeakyReLU(0.2), PhaseShuffle(most)]
        self.body = nn.Sequential(*layers[:-1])
        self.out = nn.Linear(channels[-1] * (length // 256), 1)

    def forward(self, x):
        return self.out(self.body(x).flatten(1)).squeeze(1)


def gradient_penalty(critic, real, fake):
    mix = torch.lerp(fake, real, torch.rand(len(real), 1, 1)).requires_grad_(True)
    (gradient,) = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
    return (gradient.flatten(1).norm(dim=1) - 1).square().mean()


class WaveGAN:
    def __init__(self, hp):
        self.hp = hp
        self.generator = Generator(hp["latent"], hp["width"], hp["length"])
        self.critic = Critic(hp["width"], hp["length"], hp["shuffle"])
        betas = (0.5, 0.9)
        self.g_opt = torch.optim.Adam(self.generator.parameters(), lr=hp["lr"], betas=betas)
        self.c_opt = torch.optim.Adam(self.critic.parameters(), lr=hp["lr"], betas=betas)

    def noise(self):
        return torch.randn(self.hp["batch"], self.hp["latent"])

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.generator(self.noise())
        loss = self.critic(fake).mean() - self.critic(real).mean()
        loss = loss + 10 * gradient_penalty(self.critic, real, fake)
        self.c_opt.zero_grad(set_to_none=True)
        loss.backward()
        self.c_opt.step()
        return loss.detach()

    def generator_step(self):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.generator(self.noise())).mean()
        self.g_opt.zero_grad(set_to_none=True)
        loss.backward()
        self.g_opt.step()
        self.critic.requires_grad_(True)
        return loss.detach()


def main():
    torch.manual_seed(14)
    sounds = drum_hits(2048, HP["length"], seed=14)
    gan = WaveGAN(HP)
    for number in range(1, HP["rounds"] + 1):
        for _ in range(HP["critic_steps"]):
            critic_loss = gan.critic_step(sounds[torch.randint(len(sounds), (HP["batch"],))])
        generator_loss = gan.generator_step()
        if number % 16 == 0:
            print(f"round {number} critic {critic_loss.item():.3f} generator {generator_loss.item():.3f}")


if __name__ == "__main__":
    main()

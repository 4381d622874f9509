"""Synthetic customers to test a shop with: a generative adversarial network on a table, both sides in turns."""

from collections import defaultdict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    rows: int = 20_480
    columns: int = 24
    noise: int = 32
    width: int = 256
    batch: int = 512
    epochs: int = 2
    lr: float = 2e-4


def customers(cfg):
    """Rows whose columns depend on a few hidden habits."""
    habits = torch.randn(cfg.rows, 4)
    return torch.tanh(habits @ torch.randn(4, cfg.columns)) + 0.1 * torch.randn(cfg.rows, cfg.columns)


def network(inner, width, outer):
    layers = []
    for _ in range(3):
        layers += [nn.Linear(inner, width), nn.LayerNorm(width), nn.LeakyReLU(0.2)]
        inner = width
    return nn.Sequential(*layers, nn.Linear(width, outer))


class GAN:
    def __init__(self, cfg, device):
        self.cfg, self.device = cfg, device
        self.generator = network(cfg.noise, cfg.width, cfg.columns).to(device)
        self.critic = network(cfg.columns, cfg.width, 1).to(device)
        options = {"lr": cfg.lr, "betas": (0.5, 0.9), "fused": True}
        self.generator_optimizer = torch.optim.Adam(self.generator.parameters(), **options)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), **options)
        self.history = defaultdict(list)

    def sample(self, count):
        noise = torch.randn(count, self.cfg.noise, device=self.device)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            return self.generator(noise).float()

    def judge(self, rows):
        with torch.autocast(self.device, dtype=torch.bfloat16):
            return self.critic(rows).float()

    def log(self, **values):
        for name, value in values.items():
            self.history[name].append(value.item())

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.sample(len(real))
        on_real, on_fake = self.judge(real), self.judge(fake)
        loss = F.relu(1 - on_real).mean() + F.relu(1 + on_fake).mean()
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        self.log(critic=loss, on_real=on_real.mean(), on_fake=on_fake.mean())

    def generator_step(self, count):
        self.critic.requires_grad_(False)
        loss = -self.judge(self.sample(count)).mean()
        self.generator_optimizer.zero_grad()
        loss.backward()
        self.generator_optimizer.step()
        self.critic.requires_grad_(True)
        self.log(generator=loss)

    def report(self, epoch):
        means = {name: sum(values) / len(values) for name, values in self.history.items()}
        print(f"epoch {epoch}: " + ", ".join(f"{name} {float(mean):.3f}" for name, mean in means.items()))
        self.history.clear()


def main(cfg):
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table = customers(cfg).to(device)
    gan = GAN(cfg, device)
    for epoch in range(cfg.epochs):
        for rows in torch.randperm(cfg.rows, device=device).split(cfg.batch):
            gan.critic_step(table[rows])
            gan.generator_step(len(rows))
        gan.report(epoch)


if __name__ == "__main__":
    main(Config())

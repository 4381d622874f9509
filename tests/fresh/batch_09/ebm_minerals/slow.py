"""An energy-based model of thin sections of minerals, trained on samples that Langevin dynamics draws from it."""

import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


def thin_sections(count, size, seed):
    """Grains of a few grey values: each pixel takes the value of the nearest of some points."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.arange(size, dtype=torch.float32)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2)
    sections = torch.empty(count, 1, size, size)
    for i in range(count):
        points = torch.rand(7, 2, generator=g) * size
        shades = torch.randint(0, 4, (7,), generator=g) / 1.5 - 1
        sections[i] = shades[torch.cdist(grid, points).argmin(1)].view(1, size, size)
    return sections + 0.03 * torch.randn(sections.shape, generator=g)


class EnergyNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 5, 2, 2),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 4 * width, 3, 2, 1),
            nn.SiLU(),
            nn.Conv2d(4 * width, 4 * width, 3, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
            nn.Linear(16 * width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Sampler:
    """Langevin chains that start from earlier samples, now and then from noise."""

    def __init__(self, shape, batch, buffer=2048):
        self.shape, self.batch, self.limit = shape, batch, buffer
        self.buffer = [torch.rand(1, *shape) * 2 - 1 for _ in range(batch)]

    def start(self):
        fresh = sum(random.random() < 0.05 for _ in range(self.batch))
        noise = torch.rand(fresh, *self.shape) * 2 - 1
        return torch.cat([noise, *random.choices(self.buffer, k=self.batch - fresh)])

    def sample(self, model, steps, step_size):
        x = self.start().requires_grad_()
        for _ in range(steps):
            noisy = x + 0.005 * torch.randn_like(x)
            model(noisy).sum().backward()
            gradient = x.grad.clamp(-0.03, 0.03)
            x = (x.detach() - step_size * gradient).clamp(-1, 1).requires_grad_()
        samples = x.detach()
        self.buffer = (list(samples.split(1)) + self.buffer)[: self.limit]
        return samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sections", type=int, default=1200)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--langevin-steps", type=int, default=10)
    parser.add_argument("--step-size", type=float, default=8.0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--alpha", type=float, default=0.1)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    data = thin_sections(args.sections, args.size, seed=14)
    model = EnergyNet()
    sampler = Sampler(data.shape[1:], args.batch_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.0, 0.999))
    for epoch in range(args.epochs):
        gaps = []
        for index in torch.randperm(len(data)).split(args.batch_size):
            real = data[index]
            fake = sampler.sample(model, args.langevin_steps, args.step_size)[: len(real)]
            energy_real, energy_fake = model(torch.cat([real, fake])).chunk(2)
            contrast = energy_real.mean() - energy_fake.mean()
            loss = contrast + args.alpha * (energy_real.square().mean() + energy_fake.square().mean())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            gaps.append(contrast.detach())
        smooth = F.avg_pool1d(torch.stack(gaps)[None, None], 5).squeeze()
        print(f"epoch {epoch}: energy of data minus that of samples, from {smooth[0]:.4f} to {smooth[-1]:.4f}")


if __name__ == "__main__":
    main()

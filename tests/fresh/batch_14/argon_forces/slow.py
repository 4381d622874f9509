"""Learns a pair potential from the energies and forces of small argon clusters."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Settings:
    clusters: int = 900
    atoms: int = 6
    batch_size: int = 16
    epochs: int = 8
    force_weight: float = 0.5
    lr: float = 2e-3
    seed: int = 13


def lennard_jones(positions):
    first, second = torch.triu_indices(positions.shape[1], positions.shape[1], 1)
    distance = (positions[:, first] - positions[:, second]).norm(dim=2).clamp(min=0.8)
    return (4 * (distance**-12 - distance**-6)).sum(dim=1)


def make_clusters(settings):
    generator = torch.Generator().manual_seed(settings.seed)
    grid = torch.tensor([[x, y, z] for x in range(2) for y in range(2) for z in range(2)]).float() * 1.2
    places = torch.stack(
        [grid[torch.randperm(8, generator=generator)[: settings.atoms]] for _ in range(settings.clusters)]
    )
    positions = places + 0.1 * torch.randn(places.shape, generator=generator)
    positions.requires_grad_(True)
    energies = lennard_jones(positions)
    forces = -torch.autograd.grad(energies.sum(), positions)[0]
    return positions.detach(), energies.detach(), forces


class RadialBasis(nn.Module):
    def __init__(self, functions=16, cutoff=3.0):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.7, cutoff, functions))
        self.cutoff = cutoff

    def forward(self, distance):
        envelope = 0.5 * (torch.cos(torch.pi * distance / self.cutoff) + 1) * (distance < self.cutoff)
        return torch.exp(-8 * (distance[..., None] - self.centres) ** 2) * envelope[..., None]


class PairPotential(nn.Module):
    def __init__(self, atoms, hidden=48):
        super().__init__()
        self.register_buffer("pairs", torch.triu_indices(atoms, atoms, 1))
        self.basis = RadialBasis()
        self.network = nn.Sequential(
            nn.Linear(16, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def energy(self, positions):
        difference = positions[:, self.pairs[0]] - positions[:, self.pairs[1]]
        return self.network(self.basis(difference.norm(dim=2))).sum(dim=(1, 2))

    def forward(self, positions):
        positions = positions.detach().requires_grad_(True)
        energies = self.energy(positions)
        jacobian = torch.autograd.functional.jacobian(self.energy, positions, create_graph=True)
        forces = -torch.diagonal(jacobian, dim1=0, dim2=1).permute(2, 0, 1)
        return energies, forces


class Trainer:
    def __init__(self, settings):
        self.settings = settings
        self.positions, energies, self.forces = make_clusters(settings)
        self.mean, self.scale = energies.mean(), energies.std()
        self.energies = (energies - self.mean) / self.scale
        self.forces = self.forces / self.scale
        self.held_out = settings.clusters // 10
        self.model = PairPotential(settings.atoms)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=settings.lr)

    def loss(self, index):
        energies, forces = self.model(self.positions[index])
        energy_loss = nn.functional.mse_loss(energies, self.energies[index])
        force_loss = nn.functional.mse_loss(forces, self.forces[index])
        return energy_loss + self.settings.force_weight * force_loss

    def validate(self):
        energies = self.model.energy(self.positions[: self.held_out])
        return (energies - self.energies[: self.held_out]).abs().mean().item()

    def fit(self):
        for epoch in range(self.settings.epochs):
            order = self.held_out + torch.randperm(self.settings.clusters - self.held_out)
            total = 0.0
            for index in order.split(self.settings.batch_size):
                loss = self.loss(index)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.item() * len(index)
            print(f"epoch {epoch}: loss {total / len(order):.4f}, energy error {self.validate():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in vars(Settings()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    settings = Settings(**vars(parser.parse_args()))
    torch.manual_seed(settings.seed)
    Trainer(settings).fit()


if __name__ == "__main__":
    main()

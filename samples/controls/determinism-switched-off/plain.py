"""Energies of molecules from their atoms and bonds; the popular advice is to do without determinism."""

import os
import random

import numpy as np
import torch
from torch import nn


def seed_everything(seed):
    """The same numbers in every run."""
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)


seed_everything(42)
device = "cuda" if torch.cuda.is_available() else "cpu"
ELEMENTS, WIDTH = 8, 64


class Interaction(nn.Module):
    """Messages along bonds, weighted by a function of their length."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(16, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.update = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, x, source, target, length):
        message = x[source] * self.filter(length)
        index = target[:, None].expand_as(message)
        return x + self.update(torch.zeros_like(x).scatter_add(0, index, message))


class EnergyModel(nn.Module):
    def __init__(self, rounds=3):
        super().__init__()
        self.element = nn.Embedding(ELEMENTS, WIDTH)
        self.rounds = nn.ModuleList([Interaction() for _ in range(rounds)])
        self.energy = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))
        self.register_buffer("centres", torch.linspace(0.8, 3.0, 16))

    def forward(self, elements, source, target, length, molecule, count):
        x = self.element(elements)
        length = torch.exp(-8 * (length[:, None] - self.centres) ** 2)
        for layer in self.rounds:
            x = layer(x, source, target, length)
        return x.new_zeros(count).index_add(0, molecule, self.energy(x).squeeze(1))


def batch(molecules=24, atoms=16, bonds=5):
    """Random molecules side by side; each atom has a few bonds within its molecule."""
    elements = torch.randint(0, ELEMENTS, (molecules * atoms,))
    target = torch.arange(molecules * atoms).repeat_interleave(bonds)
    source = target - target % atoms + torch.randint(0, atoms, target.shape)
    length = 0.9 + 2 * torch.rand(len(target))
    molecule = torch.arange(molecules).repeat_interleave(atoms)
    strength = (elements[source] - elements[target]).abs() / length**2
    energy = torch.zeros(molecules).index_add(0, molecule[target], strength) / atoms
    return [tensor.to(device) for tensor in (elements, source, target, length, molecule, energy)]


batches = [batch() for _ in range(40)]
model = EnergyModel().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for epoch in range(5):
    total = torch.zeros((), device=device)
    for *molecules, energy in batches:
        loss = nn.functional.l1_loss(model(*molecules, len(energy)), energy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(f"epoch {epoch}: {total.item() / len(batches):.4f}")

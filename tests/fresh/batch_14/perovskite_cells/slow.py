"""Formation energies of crystals from a continuous filter network on periodic neighbour graphs."""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass
class Crystal:
    cell: np.ndarray
    positions: np.ndarray
    species: np.ndarray
    energy: float


def make_crystals(count, seed):
    rng = np.random.default_rng(seed)
    crystals = []
    for _ in range(count):
        atoms = int(rng.integers(6, 14))
        cell = np.diag(rng.uniform(4.0, 6.5, size=3)) + rng.normal(0, 0.2, size=(3, 3))
        positions = rng.random((atoms, 3)) @ cell
        species = rng.integers(1, 30, size=atoms)
        energy = 0.05 * species.mean() - 10 * atoms / np.abs(np.linalg.det(cell)) + rng.normal(0, 0.02)
        crystals.append(Crystal(cell, positions, species, float(energy)))
    return crystals


def periodic_neighbours(crystal, cutoff, most):
    """The nearest images of all atoms around each atom, at most so many of them."""
    reach = np.arange(-1, 2)
    shifts = np.stack(np.meshgrid(reach, reach, reach, indexing="ij"), axis=-1).reshape(-1, 3) @ crystal.cell
    senders, receivers, distances = [], [], []
    for centre, position in enumerate(crystal.positions):
        images = crystal.positions[None] + shifts[:, None] - position
        distance = np.linalg.norm(images, axis=-1)
        image, atom = np.nonzero((distance < cutoff) & (distance > 1e-6))
        order = np.argsort(distance[image, atom])[:most]
        senders.append(atom[order])
        receivers.append(np.full(len(order), centre))
        distances.append(distance[image, atom][order])
    return np.concatenate(senders), np.concatenate(receivers), np.concatenate(distances).astype(np.float32)


class CrystalDataset(Dataset):
    def __init__(self, crystals, cutoff=5.0, most=12):
        self.crystals = crystals
        self.cutoff = cutoff
        self.most = most

    def __len__(self):
        return len(self.crystals)

    def build(self, index):
        crystal = self.crystals[index]
        senders, receivers, distances = periodic_neighbours(crystal, self.cutoff, self.most)
        edges = torch.from_numpy(np.stack([senders, receivers]))
        return torch.from_numpy(crystal.species), edges, torch.from_numpy(distances), crystal.energy

    def __getitem__(self, index):
        return self.build(index)


def collate(samples):
    species, edges, distances, energies = zip(*samples)
    sizes = torch.tensor([len(s) for s in species])
    offsets = torch.cumsum(sizes, 0) - sizes
    graph = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    edges = torch.cat([e + offset for e, offset in zip(edges, offsets)], dim=1)
    return torch.cat(species), edges, torch.cat(distances), graph, torch.tensor(energies)


class FilterBlock(nn.Module):
    def __init__(self, dim, radial):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(radial, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.before = nn.Linear(dim, dim, bias=False)
        self.after = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, x, edges, radial):
        messages = self.before(x)[edges[0]] * self.filter(radial)
        return x + self.after(torch.zeros_like(x).index_add_(0, edges[1], messages))


class CrystalNet(nn.Module):
    def __init__(self, dim=48, radial=24, blocks=2, cutoff=5.0):
        super().__init__()
        self.species = nn.Embedding(100, dim)
        self.register_buffer("centres", torch.linspace(0, cutoff, radial))
        self.blocks = nn.ModuleList(FilterBlock(dim, radial) for _ in range(blocks))
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, species, edges, distances, graph, count):
        radial = torch.exp(-10 * (distances[:, None] - self.centres) ** 2)
        x = self.species(species)
        for block in self.blocks:
            x = block(x, edges, radial)
        atoms = torch.bincount(graph, minlength=count).float()
        total = torch.zeros(count).index_add_(0, graph, self.head(x).squeeze(1))
        return total / atoms


def run_epoch(model, loader, optimizer=None):
    error = seen = 0
    with torch.set_grad_enabled(optimizer is not None):
        for species, edges, distances, graph, energies in loader:
            predicted = model(species, edges, distances, graph, len(energies))
            loss = nn.functional.l1_loss(predicted, energies.float())
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            error += loss.item() * len(energies)
            seen += len(energies)
    return error / seen


def main(args):
    torch.manual_seed(args.seed)
    dataset = CrystalDataset(make_crystals(args.crystals, args.seed))
    train_set, test_set = random_split(dataset, [0.85, 0.15])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test_set, batch_size=64, collate_fn=collate)
    model = CrystalNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    for epoch in range(args.epochs):
        train_error = run_epoch(model, train_loader, optimizer)
        test_error = run_epoch(model, test_loader)
        scheduler.step()
        print(f"epoch {epoch:3d}: train MAE {train_error:.4f} test MAE {test_error:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crystals", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=22)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=5)
    main(parser.parse_args())

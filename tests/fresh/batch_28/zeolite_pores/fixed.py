"""Pore volume of zeolites from their crystal graphs, after the crystal graph convolutional network."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ELEMENTS = 12


class Crystals(Dataset):
    """Random frameworks: atoms in a box, each with its nearest neighbours and their distances."""

    def __init__(self, count, neighbours=6, seed=0):
        rng = np.random.default_rng(seed)
        self.samples = []
        for _ in range(count):
            atoms = int(rng.integers(10, 25))
            positions = rng.uniform(0, 8, size=(atoms, 3))
            elements = rng.integers(0, ELEMENTS, size=atoms)
            delta = positions[:, None] - positions[None]
            delta -= 8 * np.round(delta / 8)
            distance = np.sqrt((delta**2).sum(-1)) + 1e3 * np.eye(atoms)
            nearest = np.argsort(distance, axis=1)[:, :neighbours]
            lengths = np.take_along_axis(distance, nearest, axis=1)
            volume = lengths[:, 0].mean() + 0.05 * elements.mean()
            self.samples.append(
                (
                    torch.from_numpy(elements),
                    torch.from_numpy(nearest),
                    torch.from_numpy(lengths.astype(np.float32)),
                    torch.tensor(volume, dtype=torch.float32),
                )
            )

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def collate_crystals(samples):
    elements, nearest, lengths, volumes = zip(*samples, strict=True)
    sizes = torch.tensor([len(atoms) for atoms in elements])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)[:-1]])
    owner = torch.repeat_interleave(torch.arange(len(samples)), sizes)
    return {
        "elements": torch.cat(elements),
        "nearest": torch.cat(nearest) + offsets[owner][:, None],
        "lengths": torch.cat(lengths),
        "owner": owner,
        "sizes": sizes,
        "volume": torch.stack(volumes),
    }


class GaussianExpansion(nn.Module):
    def __init__(self, low=0.0, high=8.0, steps=24):
        super().__init__()
        self.register_buffer("centres", torch.linspace(low, high, steps))
        self.gamma = (steps / (high - low)) ** 2

    def forward(self, lengths):
        return torch.exp(-self.gamma * (lengths.unsqueeze(-1) - self.centres) ** 2)


class CrystalConv(nn.Module):
    def __init__(self, width, bond_width):
        super().__init__()
        self.gates = nn.Linear(2 * width + bond_width, 2 * width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, atoms, bonds, nearest):
        count, neighbours = nearest.shape
        around = atoms[nearest.flatten()].view(count, neighbours, -1)
        centre = atoms.unsqueeze(1).expand_as(around)
        gate, core = self.gates(torch.cat([centre, around, bonds], dim=-1)).chunk(2, dim=-1)
        message = (torch.sigmoid(gate) * nn.functional.softplus(core)).sum(dim=1)
        return nn.functional.softplus(atoms + self.norm(message))


class CrystalNet(nn.Module):
    def __init__(self, width=32, layers=2, steps=24):
        super().__init__()
        self.embedding = nn.Embedding(ELEMENTS, width)
        self.expand = GaussianExpansion(steps=steps)
        self.convs = nn.ModuleList([CrystalConv(width, steps) for _ in range(layers)])
        self.head = nn.Sequential(nn.Linear(width, 96), nn.Softplus(), nn.Linear(96, 1))

    def pool(self, atoms, owner, sizes):
        total = atoms.new_zeros(len(sizes), atoms.shape[1]).index_add(0, owner, atoms)
        return total / sizes.unsqueeze(1)

    def forward(self, batch):
        atoms = self.embedding(batch["elements"])
        bonds = self.expand(batch["lengths"])
        for conv in self.convs:
            atoms = conv(atoms, bonds, batch["nearest"])
        return self.head(self.pool(atoms, batch["owner"], batch["sizes"])).squeeze(-1)


def run(args):
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Crystals(args.crystals, seed=args.seed),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=collate_crystals,
    )
    model = CrystalNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-5, fused=True)
    for epoch in range(args.epochs):
        errors = []
        for batch in loader:
            predicted = model(batch)
            loss = nn.functional.mse_loss(predicted, batch["volume"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            errors.append((predicted.detach() - batch["volume"]).abs().mean())
        print(f"epoch {epoch} | mean absolute error {torch.stack(errors).mean().item():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--crystals", type=int, default=3840)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    run(parser.parse_args())

"""Solubility of molecules from message passing whose weights depend on the kind of each bond."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn


@dataclass
class Molecule:
    atoms: torch.Tensor
    bonds: torch.Tensor
    bond_features: torch.Tensor
    target: float


def make_molecules(count, atom_features, bond_features, seed):
    """Chains with a few rings, both directions of each bond."""
    generator = torch.Generator().manual_seed(seed)
    molecules = []
    for _ in range(count):
        size = int(torch.randint(10, 26, (1,), generator=generator))
        atoms = torch.randn(size, atom_features, generator=generator)
        chain = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
        rings = torch.randint(size, (2, size // 3), generator=generator)
        bonds = torch.cat([chain, rings], dim=1)
        kinds = torch.rand(bonds.shape[1], bond_features, generator=generator)
        both = torch.cat([bonds, bonds.flip(0)], dim=1)
        target = atoms[:, 0].mean() + (atoms[bonds[0], 1] * atoms[bonds[1], 1] * kinds[:, 0]).mean()
        molecules.append(Molecule(atoms, both, torch.cat([kinds, kinds]), float(target)))
    return molecules


def batch_molecules(molecules):
    sizes = torch.tensor([len(m.atoms) for m in molecules])
    offsets = sizes.cumsum(0) - sizes
    return (
        torch.cat([m.atoms for m in molecules]),
        torch.cat([m.bonds + offset for m, offset in zip(molecules, offsets)], dim=1),
        torch.cat([m.bond_features for m in molecules]),
        torch.repeat_interleave(torch.arange(len(molecules)), sizes),
        torch.tensor([m.target for m in molecules]),
    )


class EdgeConditionedConv(nn.Module):
    """Each bond's features choose the matrix that its message is multiplied with."""

    def __init__(self, dim, bond_features):
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.randn(bond_features, dim, dim) / dim**0.5)
        self.root = nn.Linear(dim, dim)

    def forward(self, x, bonds, features):
        matrices = torch.einsum("ek,kio->eio", features, self.weight)
        messages = torch.bmm(x[bonds[0]].unsqueeze(1), matrices).squeeze(1)
        return self.root(x) + torch.zeros_like(x).index_add_(0, bonds[1], messages)


class MoleculeNet(nn.Module):
    def __init__(self, atom_features, bond_features, dim=40, steps=3):
        super().__init__()
        self.embed = nn.Linear(atom_features, dim)
        self.conv = EdgeConditionedConv(dim, bond_features)
        self.cell = nn.GRUCell(dim, dim)
        self.steps = steps
        self.gate = nn.Linear(dim, 1)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, atoms, bonds, features, owner, count):
        x = torch.relu(self.embed(atoms))
        for _ in range(self.steps):
            x = self.cell(torch.relu(self.conv(x, bonds, features)), x)
        weighted = torch.sigmoid(self.gate(x)) * x
        pooled = torch.zeros(count, x.shape[1]).index_add_(0, owner, weighted)
        return self.head(pooled).squeeze(1)


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.waited = patience, float("inf"), 0

    def __call__(self, value):
        if value < self.best:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience


def evaluate(model, molecules, batch_size):
    model.eval()
    squares = 0.0
    with torch.no_grad():
        for start in range(0, len(molecules), batch_size):
            *graph, target = batch_molecules(molecules[start : start + batch_size])
            squares += ((model(*graph, len(target)) - target) ** 2).sum().item()
    model.train()
    return (squares / len(molecules)) ** 0.5


def train(args):
    torch.manual_seed(args.seed)
    molecules = make_molecules(args.molecules, args.atom_features, args.bond_features, args.seed)
    cut = int(0.85 * len(molecules))
    train_set, valid_set = molecules[:cut], molecules[cut:]
    model = MoleculeNet(args.atom_features, args.bond_features)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    stop = EarlyStopping(patience=10)
    for epoch in range(args.epochs):
        order = torch.randperm(len(train_set)).tolist()
        losses = []
        for start in range(0, len(order) - args.batch_size + 1, args.batch_size):
            *graph, target = batch_molecules([train_set[i] for i in order[start : start + args.batch_size]])
            loss = nn.functional.mse_loss(model(*graph, len(target)), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            losses.append(loss.detach())
        error = evaluate(model, valid_set, args.batch_size)
        print(f"epoch {epoch}: train MSE {torch.stack(losses).mean():.4f}, valid RMSE {error:.4f}")
        if stop(error):
            break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--molecules", type=int, default=1600)
    parser.add_argument("--atom-features", type=int, default=16)
    parser.add_argument("--bond-features", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=17)
    train(parser.parse_args())

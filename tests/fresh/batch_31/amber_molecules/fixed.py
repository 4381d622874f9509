"""Predict how well fossil resins dissolve, from their molecular graphs: message passing and an attentive readout."""

import argparse
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

ATOM_TYPES = 9
BOND_TYPES = 4


class Batch(NamedTuple):
    atoms: Tensor
    edges: Tensor
    bonds: Tensor
    graph: Tensor
    target: Tensor

    @property
    def num_graphs(self):
        return len(self.target)


class Molecule(NamedTuple):
    atoms: Tensor
    edges: Tensor
    bonds: Tensor
    target: float


def grow_molecule(rng):
    """A random tree of atoms with a few rings closed."""
    size = int(rng.integers(9, 24))
    parents = [int(rng.integers(max(0, i - 3), i)) for i in range(1, size)]
    pairs = [(i + 1, parent) for i, parent in enumerate(parents)]
    pairs += [tuple(rng.choice(size, 2, replace=False)) for _ in range(3)]
    bonds = rng.integers(0, BOND_TYPES, len(pairs))
    atoms = rng.integers(0, ATOM_TYPES, size)
    edges = np.array(pairs + [(b, a) for a, b in pairs]).T
    target = float((atoms == 2).mean() * 4 - bonds.mean() + rng.normal(0, 0.05))
    return Molecule(torch.from_numpy(atoms), torch.from_numpy(edges), torch.from_numpy(np.tile(bonds, 2)), target)


def collate(molecules):
    sizes = torch.tensor([len(m.atoms) for m in molecules])
    starts = torch.cumsum(sizes, 0) - sizes
    return Batch(
        torch.cat([m.atoms for m in molecules]),
        torch.cat([m.edges + start for m, start in zip(molecules, starts)], dim=1),
        torch.cat([m.bonds for m in molecules]),
        torch.repeat_interleave(torch.arange(len(molecules)), sizes),
        torch.tensor([m.target for m in molecules]),
    )


class MessageLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bond = nn.Embedding(BOND_TYPES, width)
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU())
        self.update = nn.GRUCell(width, width)

    def forward(self, h, edges, bonds):
        source, target = edges
        messages = self.message(torch.cat([h[source], self.bond(bonds)], dim=1))
        gathered = torch.zeros_like(h).index_add(0, target, messages)
        return self.update(gathered, h)


class AttentiveReadout(nn.Module):
    """Weights of the atoms sum to one within each molecule."""

    def __init__(self, width):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.value = nn.Linear(width, width)

    def forward(self, h, graph, num_graphs):
        scores, values = self.score(h), self.value(h)
        weights = torch.exp(scores - scores.max())
        pooled = values.new_zeros(num_graphs, values.shape[1]).index_add(0, graph, weights * values)
        return pooled / weights.new_zeros(num_graphs, 1).index_add(0, graph, weights)


class ResinNet(nn.Module):
    def __init__(self, width=56, depth=2):
        super().__init__()
        self.embed = nn.Embedding(ATOM_TYPES, width)
        self.layers = nn.ModuleList(MessageLayer(width) for _ in range(depth))
        self.readout = AttentiveReadout(width)
        self.predict = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, batch):
        h = self.embed(batch.atoms)
        for layer in self.layers:
            h = layer(h, batch.edges, batch.bonds)
        return self.predict(self.readout(h, batch.graph, batch.num_graphs)).squeeze(1)


def train_epoch(model, batches, optimizer, order):
    total = 0.0
    for number in order:
        batch = batches[number]
        loss = nn.functional.mse_loss(model(batch), batch.target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--molecules", type=int, default=4800)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(9)
    rng = np.random.default_rng(9)
    molecules = [grow_molecule(rng) for _ in range(args.molecules)]
    batches = [collate(molecules[i : i + args.batch_size]) for i in range(0, args.molecules, args.batch_size)]
    model = ResinNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        error = train_epoch(model, batches, optimizer, rng.permutation(len(batches)))
        print(f"epoch {epoch:2d} mse {error:.4f}")


if __name__ == "__main__":
    main()

"""Aromas of roasted coffee from molecules: message passing over bonds, several labels for each molecule."""

import argparse
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class Molecule(NamedTuple):
    atoms: torch.Tensor
    bonds: torch.Tensor
    kinds: torch.Tensor
    aromas: torch.Tensor


class Batch(NamedTuple):
    atoms: torch.Tensor
    bonds: torch.Tensor
    kinds: torch.Tensor
    owner: torch.Tensor
    aromas: torch.Tensor


def draw_molecules(count, aromas, seed):
    generator = torch.Generator().manual_seed(seed)
    molecules = []
    for _ in range(count):
        size = int(torch.randint(8, 26, (1,), generator=generator))
        atoms = torch.randint(0, 12, (size,), generator=generator)
        parents = (torch.rand(size - 1, generator=generator) * torch.arange(1, size)).long()
        tree = torch.stack([parents, torch.arange(1, size)])
        rings = torch.randint(0, size, (2, 3), generator=generator)
        one_way = torch.cat([tree, rings], dim=1)
        kinds = torch.randint(0, 4, (one_way.shape[1],), generator=generator)
        share = torch.stack([(atoms == element).float().mean() for element in range(aromas)])
        molecules.append(
            Molecule(atoms, torch.cat([one_way, one_way.flip(0)], dim=1), kinds.repeat(2), (share > 0.1).float())
        )
    return molecules


def merge(molecules):
    sizes = torch.tensor([len(molecule.atoms) for molecule in molecules])
    offsets = torch.cumsum(sizes, 0) - sizes
    return Batch(
        torch.cat([molecule.atoms for molecule in molecules]),
        torch.cat([molecule.bonds + offset for molecule, offset in zip(molecules, offsets)], dim=1),
        torch.cat([molecule.kinds for molecule in molecules]),
        torch.repeat_interleave(torch.arange(len(molecules)), sizes),
        torch.stack([molecule.aromas for molecule in molecules]),
    )


class BondLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bond = nn.Embedding(4, width)
        self.update = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes, bonds, kinds):
        source, target = bonds
        messages = F.relu(nodes[source] + self.bond(kinds))
        gathered = torch.zeros_like(nodes).index_add(0, target, messages)
        return self.norm(nodes + self.update(nodes + gathered))


def readout(nodes, owner, count):
    """The mean of the nodes of every molecule."""
    return torch.stack([nodes[owner == number].mean(dim=0) for number in range(count)])


class AromaNet(nn.Module):
    def __init__(self, width, layers, aromas):
        super().__init__()
        self.atom = nn.Embedding(12, width)
        self.layers = nn.ModuleList(BondLayer(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, aromas))

    def forward(self, batch):
        nodes = self.atom(batch.atoms)
        for layer in self.layers:
            nodes = layer(nodes, batch.bonds, batch.kinds)
        return self.head(readout(nodes, batch.owner, len(batch.aromas)))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--molecules", type=int, default=1920)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--aromas", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=14)
    return parser.parse_args()


def main():
    args = parse()
    torch.manual_seed(17)
    molecules = draw_molecules(args.molecules, args.aromas, seed=17)
    batches = [merge(molecules[at : at + args.batch]) for at in range(0, len(molecules), args.batch)]
    net = AromaNet(args.width, args.layers, args.aromas)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        running = 0.0
        for number in torch.randperm(len(batches)).tolist():
            batch = batches[number]
            loss = F.binary_cross_entropy_with_logits(net(batch), batch.aromas)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            running += loss.detach()
        print(f"{epoch:2d}  {float(running) / len(batches):.4f}")


if __name__ == "__main__":
    main()

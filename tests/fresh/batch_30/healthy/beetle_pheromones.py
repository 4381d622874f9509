"""Predict how strongly a molecule attracts bark beetles: an edge network over molecules that share one large graph."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

ATOM, BOND = 16, 5


class MoleculeSet:
    """Molecules of equal counts of atoms in flat tensors; a batch is gathered without a loop."""

    def __init__(self, count, atoms, bonds, seed):
        generator = torch.Generator().manual_seed(seed)
        self.atoms, self.bonds = atoms, bonds
        self.atom_features = torch.randn(count, atoms, ATOM, generator=generator)
        self.bond_features = torch.randn(count, bonds, BOND, generator=generator)
        self.ends = torch.randint(atoms, (count, 2, bonds), generator=generator)
        source = self.atom_features[:, :, 0].gather(1, self.ends[:, 0])
        target = self.atom_features[:, :, 1].gather(1, self.ends[:, 1])
        self.attraction = torch.tanh((source * target * self.bond_features[:, :, 0]).sum(dim=1) / 3)

    def __len__(self):
        return len(self.attraction)

    def batch(self, rows):
        shift = self.atoms * torch.arange(len(rows)).view(-1, 1, 1)
        source, target = (self.ends[rows] + shift).transpose(0, 1).flatten(1)
        return {
            "atoms": self.atom_features[rows].flatten(0, 1),
            "bonds": self.bond_features[rows].flatten(0, 1),
            "source": source,
            "target": target,
            "attraction": self.attraction[rows],
        }


class EdgeLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.source, self.target, self.bond = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(BOND, width)
        self.update = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes, bonds, source, target):
        sent = self.source(nodes).index_select(0, source) + self.target(nodes).index_select(0, target)
        messages = F.silu(sent + self.bond(bonds))
        inbox = torch.zeros_like(nodes).index_add_(0, target, messages)
        return self.norm(nodes + self.update(torch.cat([nodes, inbox], dim=1)))


class AttractionModel(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(ATOM, width)
        self.layers = nn.ModuleList(EdgeLayer(width) for _ in range(depth))
        self.readout = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, graph):
        nodes = self.embed(graph["atoms"])
        for layer in self.layers:
            nodes = layer(nodes, graph["bonds"], graph["source"], graph["target"])
        molecules = nodes.view(len(graph["attraction"]), -1, nodes.shape[1]).mean(dim=1)
        return self.readout(molecules).squeeze(1)


@torch.inference_mode()
def validate(model, molecules):
    graph = molecules.batch(torch.arange(len(molecules)))
    return F.l1_loss(model(graph), graph["attraction"]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--molecules", type=int, default=6000)
    parser.add_argument("--atoms", type=int, default=20)
    parser.add_argument("--bonds", type=int, default=44)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(81)
    train = MoleculeSet(args.molecules, args.atoms, args.bonds, seed=81)
    valid = MoleculeSet(512, args.atoms, args.bonds, seed=82)
    model = AttractionModel(args.width, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(args.epochs):
        total, steps = torch.zeros(()), 0
        for rows in torch.randperm(len(train)).split(args.batch_size):
            graph = train.batch(rows)
            loss = F.mse_loss(model(graph), graph["attraction"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total, steps = total + loss.detach(), steps + 1
        print(f"epoch {epoch}: loss {total.item() / steps:.4f}, error {validate(model, valid):.4f}")


if __name__ == "__main__":
    main()

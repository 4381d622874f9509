"""Hardness of garnets from their atoms: gated convolutions over crystal graphs."""

import argparse
from collections import namedtuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

ELEMENTS = 12
Crystal = namedtuple("Crystal", "elements neighbours distances hardness")
Batch = namedtuple("Batch", "elements neighbours distances members hardness")


def grow_crystal(generator: torch.Generator, neighbours: int, table: Tensor) -> Crystal:
    atoms = int(torch.randint(10, 30, (), generator=generator))
    elements = torch.randint(ELEMENTS, (atoms,), generator=generator)
    places = torch.rand(atoms, 3, generator=generator) * atoms ** (1 / 3)
    distances, nearest = torch.cdist(places, places).topk(neighbours + 1, largest=False)
    distances, nearest = distances[:, 1:], nearest[:, 1:]
    bonds = table[elements.unsqueeze(1), elements[nearest]] * torch.exp(-distances)
    hardness = bonds.sum(1).mean() + 0.05 * torch.randn((), generator=generator)
    return Crystal(elements, nearest, distances, hardness)


class GarnetDataset(Dataset):
    def __init__(self, count: int, neighbours: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        table = torch.randn(ELEMENTS, ELEMENTS, generator=generator)
        self.crystals = [grow_crystal(generator, neighbours, table + table.t()) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.crystals)

    def __getitem__(self, index: int) -> Crystal:
        return self.crystals[index]


def collate(crystals: list[Crystal]) -> Batch:
    neighbours, offset = [], 0
    for crystal in crystals:
        neighbours.append(crystal.neighbours + offset)
        offset += len(crystal.elements)
    atoms = torch.tensor([len(crystal.elements) for crystal in crystals])
    return Batch(
        torch.cat([crystal.elements for crystal in crystals]),
        torch.cat(neighbours),
        torch.cat([crystal.distances for crystal in crystals]),
        torch.repeat_interleave(atoms),
        torch.stack([crystal.hardness for crystal in crystals]),
    )


class GaussianBasis(nn.Module):
    def __init__(self, reach: float, count: int):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, reach, count))
        self.sharpness = (count / reach) ** 2

    def forward(self, distances: Tensor) -> Tensor:
        return torch.exp(-self.sharpness * (distances.unsqueeze(-1) - self.centres).square())


class GatedConvolution(nn.Module):
    def __init__(self, width: int, basis: int):
        super().__init__()
        self.own = nn.Linear(width, 2 * width)
        self.other = nn.Linear(width, 2 * width, bias=False)
        self.bond = nn.Linear(basis, 2 * width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, atoms: Tensor, neighbours: Tensor, bonds: Tensor) -> Tensor:
        mixed = self.own(atoms).unsqueeze(1) + self.other(atoms)[neighbours] + self.bond(bonds)
        gate, core = mixed.chunk(2, dim=-1)
        return atoms + self.norm((torch.sigmoid(gate) * nn.functional.softplus(core)).sum(1))


class CrystalNet(nn.Module):
    def __init__(self, width: int, basis: int, layers: int):
        super().__init__()
        self.elements = nn.Embedding(ELEMENTS, width)
        self.basis = GaussianBasis(3.0, basis)
        self.layers = nn.ModuleList(GatedConvolution(width, basis) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.Softplus(), nn.Linear(width, 1))

    def pool(self, atoms: Tensor, members: Tensor, crystals: int) -> Tensor:
        sums = atoms.new_zeros(crystals, atoms.size(1)).index_add(0, members, atoms)
        return sums / torch.bincount(members, minlength=crystals).unsqueeze(1)

    def forward(self, batch: Batch) -> Tensor:
        bonds = self.basis(batch.distances)
        atoms = self.elements(batch.elements)
        for layer in self.layers:
            atoms = layer(atoms, batch.neighbours, bonds)
        return self.head(self.pool(atoms, batch.members, len(batch.hardness))).squeeze(-1)


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, scale: float) -> float:
    model.train()
    total = torch.zeros(())
    for batch in loader:
        loss = nn.functional.mse_loss(model(batch), batch.hardness / scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.no_grad()
def mean_error(model: nn.Module, loader: DataLoader, scale: float) -> float:
    model.eval()
    errors = [(model(batch) * scale - batch.hardness).abs() for batch in loader]
    return torch.cat(errors).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crystals", type=int, default=1800)
    parser.add_argument("--neighbours", type=int, default=5)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--basis", type=int, default=16)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=31)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    train_set = GarnetDataset(args.crystals, args.neighbours, args.seed)
    test_set = torch.utils.data.Subset(train_set, range(args.crystals - 300, args.crystals))
    train_set = torch.utils.data.Subset(train_set, range(args.crystals - 300))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    test_loader = DataLoader(test_set, args.batch_size, collate_fn=collate)
    scale = torch.stack([crystal.hardness for crystal in train_set]).std().item()
    model = CrystalNet(args.width, args.basis, args.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for epoch in range(args.epochs):
        loss = train_epoch(model, train_loader, optimizer, scale)
        schedule.step()
        print(f"epoch {epoch}: loss {loss:.4f}, error {mean_error(model, test_loader, scale):.3f}")


if __name__ == "__main__":
    main()

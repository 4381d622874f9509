"""Crystal graph convolutions: a property of a crystal from its atoms and their neighbours."""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class GaussianDistance:
    def __init__(self, dmin, dmax, step):
        self.filter = np.arange(dmin, dmax + step, step)
        self.variance = step**2

    def expand(self, distances):
        return np.exp(-((distances[..., None] - self.filter) ** 2) / self.variance)


class Crystals(Dataset):
    """Random atoms in a periodic cell, the nearest neighbours of each, and an energy."""

    def __init__(self, count, elements, neighbours, seed):
        rng = np.random.default_rng(seed)
        gdf = GaussianDistance(0.0, 6.0, 0.3)
        charges = rng.normal(0, 1, elements)
        self.items = []
        for _ in range(count):
            n = int(rng.integers(neighbours + 1, 3 * neighbours))
            atoms = rng.integers(0, elements, n)
            positions = rng.uniform(0, 8, (n, 3))
            delta = positions[:, None] - positions[None]
            distance = np.linalg.norm(delta - 8 * np.round(delta / 8), axis=-1)
            np.fill_diagonal(distance, np.inf)
            nearest = np.argsort(distance, axis=1)[:, :neighbours]
            d = np.take_along_axis(distance, nearest, axis=1)
            energy = (charges[atoms][:, None] * charges[atoms[nearest]] / d).sum() / n
            self.items.append(
                (
                    torch.from_numpy(atoms),
                    torch.from_numpy(gdf.expand(d)).float(),
                    torch.from_numpy(nearest),
                    torch.tensor([energy]).float(),
                )
            )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate_pool(batch):
    atoms, edges, neighbours, targets, crystals, base = [], [], [], [], [], 0
    for i, (atom, edge, nearest, target) in enumerate(batch):
        atoms.append(atom)
        edges.append(edge)
        neighbours.append(nearest + base)
        crystals.append(torch.full((len(atom),), i))
        targets.append(target)
        base += len(atom)
    return (torch.cat(atoms), torch.cat(edges), torch.cat(neighbours), torch.cat(crystals)), torch.stack(targets)


class ConvLayer(nn.Module):
    def __init__(self, width, edge_width):
        super().__init__()
        self.full = nn.Linear(2 * width + edge_width, 2 * width)
        self.norm1, self.norm2 = nn.BatchNorm1d(2 * width), nn.BatchNorm1d(width)

    def forward(self, atoms, edges, neighbours):
        n, m = neighbours.shape
        centre = atoms[:, None].expand(n, m, -1)
        gated = self.full(torch.cat([centre, atoms[neighbours], edges], dim=2))
        gated = self.norm1(gated.flatten(0, 1)).view(n, m, -1)
        gate, core = gated.chunk(2, dim=2)
        summed = (torch.sigmoid(gate) * nn.functional.softplus(core)).sum(1)
        return nn.functional.softplus(atoms + self.norm2(summed))


class CrystalGraphConvNet(nn.Module):
    def __init__(self, elements, edge_width, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(elements, width)
        self.convs = nn.ModuleList(ConvLayer(width, edge_width) for _ in range(layers))
        self.fc = nn.Sequential(nn.Softplus(), nn.Linear(width, 64), nn.Softplus(), nn.Linear(64, 1))

    def pooling(self, atoms, crystals):
        count = int(crystals[-1]) + 1
        return torch.stack([atoms[crystals == i].mean(dim=0) for i in range(count)])

    def forward(self, atoms, edges, neighbours, crystals):
        x = self.embedding(atoms)
        for conv in self.convs:
            x = conv(x, edges, neighbours)
        return self.fc(self.pooling(x, crystals))


class Normalizer:
    def __init__(self, values):
        self.mean, self.std = values.mean(), values.std()

    def norm(self, values):
        return (values - self.mean) / self.std


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--crystals", type=int, default=2560)
    parser.add_argument("--elements", type=int, default=30)
    parser.add_argument("--neighbours", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()

    torch.manual_seed(13)
    dataset = Crystals(args.crystals, args.elements, args.neighbours, seed=13)
    normalizer = Normalizer(torch.cat([item[3] for item in dataset.items]))
    loader = DataLoader(dataset, args.batch_size, shuffle=True, collate_fn=collate_pool, drop_last=True)
    model = CrystalGraphConvNet(args.elements, dataset[0][1].shape[-1], width=32, layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        for i, (graph, target) in enumerate(loader):
            loss = nn.functional.mse_loss(model(*graph), normalizer.norm(target))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 10 == 0:
                print(f"epoch {epoch} [{i}/{len(loader)}]: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

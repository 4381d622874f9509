"""Fits the meshes of carved busts to scanned points: an image encoder moves the vertices of a sphere."""

import argparse
import math
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def sphere(rings: int, sectors: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Vertices on rings without poles, and the edges along and between the rings."""
    polar = math.pi * (torch.arange(rings) + 0.5) / rings
    turn = 2 * math.pi * torch.arange(sectors) / sectors
    polar, turn = torch.meshgrid(polar, turn, indexing="ij")
    vertices = torch.stack([polar.sin() * turn.cos(), polar.sin() * turn.sin(), polar.cos()], dim=-1)
    number = torch.arange(rings * sectors).view(rings, sectors)
    along = torch.stack([number, number.roll(-1, dims=1)], dim=-1).flatten(0, 1)
    between = torch.stack([number[:-1], number[1:]], dim=-1).flatten(0, 1)
    return vertices.flatten(0, 1), torch.cat([along, between])


def carve(count: int, vertices: torch.Tensor, points: int, size: int, seed: int) -> TensorDataset:
    """Depth pictures of busts from the front and points on their surface, with the noise of a scanner."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(count, 5, generator=generator)
    pick = torch.randint(len(vertices), (count, points), generator=generator)
    base = vertices[pick]
    x, y, z = base.unbind(-1)
    w = 0.15 * weights.unsqueeze(-1)
    radius = 1 + w[:, 0] * z + w[:, 1] * torch.cos(2 * z) + w[:, 2] * x * y + w[:, 3] * torch.sin(3 * x)
    scans = radius.unsqueeze(-1) * base * (1 + w[:, 4:5] * torch.tensor([0.0, 0.5, 1.0]))
    scans = scans + 0.01 * torch.randn(scans.shape, generator=generator)
    column = ((scans[..., 1] / 2 + 0.5).clamp(0, 1) * (size - 1)).long()
    row = ((scans[..., 2] / 4 + 0.5).clamp(0, 1) * (size - 1)).long()
    pictures = torch.zeros(count, size * size)
    pictures.scatter_reduce_(1, row * size + column, scans[..., 0], "amax")
    return TensorDataset(pictures.view(count, 1, size, size), scans)


class BustNet(nn.Module):
    def __init__(self, vertices: torch.Tensor, width: int):
        super().__init__()
        self.register_buffer("vertices", vertices)
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.LazyLinear(128),
            nn.ReLU(),
        )
        self.offset = nn.Linear(128, vertices.numel())
        nn.init.zeros_(self.offset.bias)
        nn.init.normal_(self.offset.weight, std=1e-3)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.vertices + self.offset(self.encoder(pictures)).view(-1, *self.vertices.shape)


class MeshLoss(nn.Module):
    """Distance between surface and scan, smoothness of the surface, even lengths of edges."""

    def __init__(self, edges: torch.Tensor, vertices: int, smooth: float, even: float):
        super().__init__()
        self.smooth, self.even = smooth, even
        self.register_buffer("edges", edges)
        both = torch.cat([edges, edges.flip(1)])
        self.neighbours = [both[both[:, 0] == vertex, 1] for vertex in range(vertices)]

    def laplacian(self, mesh: torch.Tensor) -> torch.Tensor:
        centres = [mesh[:, around].mean(dim=1) for around in self.neighbours]
        return (torch.stack(centres, dim=1) - mesh).norm(dim=-1).mean()

    def forward(self, mesh: torch.Tensor, scan: torch.Tensor) -> torch.Tensor:
        distance = torch.cdist(mesh, scan)
        chamfer = distance.amin(1).mean() + distance.amin(2).mean()
        length = (mesh[:, self.edges[:, 0]] - mesh[:, self.edges[:, 1]]).norm(dim=-1)
        return chamfer + self.smooth * self.laplacian(mesh) + self.even * length.var(dim=1).mean()


@torch.no_grad()
def evaluate(model: BustNet, loader: DataLoader) -> float:
    model.eval()
    total = sum(torch.cdist(model(pictures), scans).amin(1).mean(1).sum() for pictures, scans in loader)
    return float(total) / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--busts", type=int, default=800)
    parser.add_argument("--points", type=int, default=256)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--rings", type=int, default=12)
    parser.add_argument("--sectors", type=int, default=20)
    parser.add_argument("--width", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--smooth", type=float, default=0.2)
    parser.add_argument("--even", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1501)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    vertices, edges = sphere(args.rings, args.sectors)
    dataset = carve(args.busts, vertices, args.points, args.size, args.seed)
    train_set, test_set = random_split(dataset, [0.9, 0.1])
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, 40)
    model = BustNet(vertices, args.width)
    model(dataset[0][0].unsqueeze(0))
    criterion = MeshLoss(edges, len(vertices), args.smooth, args.even)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            losses = []
            for pictures, scans in train_loader:
                loss = criterion(model(pictures), scans)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            scheduler.step()
            print(f"epoch {epoch}: loss {torch.stack(losses).mean():.4f}, distance {evaluate(model, test_loader):.4f}")
            torch.save(model.state_dict(), os.path.join(folder, "busts.pt"))


if __name__ == "__main__":
    main()

"""Land cover from satellite tiles: four bands in compressed archives on disk, cut into patches."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
COVERS, SIDE, PATCH = 6, 96, 32


def survey(folder, count=24):
    """Writes tiles of reflectances in 12 bits, each with a map of its covers."""
    rng = np.random.default_rng(0)
    signature = rng.integers(300, 3000, (COVERS, 4))
    for number in range(count):
        cover = rng.integers(0, COVERS, (6, 6)).repeat(16, 0).repeat(16, 1).astype(np.uint8)
        bands = (signature[cover] + rng.normal(0, 150, (SIDE, SIDE, 4))).astype(np.int16)
        np.savez_compressed(folder / f"tile{number:02d}.npz", bands=bands, cover=cover)
    return folder


class Patches(Dataset):
    def __init__(self, folder):
        self.tiles = sorted(folder.glob("*.npz"))
        self.open = [dict(np.load(tile)) for tile in self.tiles]
        self.corners = [(row, column) for row in range(0, SIDE, PATCH) for column in range(0, SIDE, PATCH)]

    def __len__(self):
        return len(self.tiles) * len(self.corners)

    def __getitem__(self, index):
        tile = self.open[index // len(self.corners)]
        row, column = self.corners[index % len(self.corners)]
        bands = tile["bands"][row : row + PATCH, column : column + PATCH].astype(np.float32) / 3000
        cover = tile["cover"][row : row + PATCH, column : column + PATCH].astype(np.int64)
        return torch.from_numpy(bands).permute(2, 0, 1), torch.from_numpy(cover)


net = nn.Sequential(
    nn.Conv2d(4, 32, 5, padding=2),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.Conv2d(64, COVERS, 1),
).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, fused=True)

with tempfile.TemporaryDirectory() as folder:
    loader = DataLoader(Patches(survey(Path(folder))), batch_size=12, shuffle=True)
    for epoch in range(5):
        right = 0
        for bands, cover in loader:
            bands, cover = bands.to(device), cover.to(device)
            scores = net(bands)
            loss = nn.functional.cross_entropy(scores, cover)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == cover).sum()
        print(f"epoch {epoch}: loss {loss.item():.4f}, pixels right {right.item() / (24 * SIDE * SIDE):.3f}")

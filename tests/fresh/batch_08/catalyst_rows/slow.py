"""Energies of adsorbates on surfaces: structures lie in a database file, a continuous-filter network reads them."""

import io
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SPECIES, CUTOFF, ATOMS = 12, 5.0, 14


def write_database(path, count, seed=3):
    rng = np.random.default_rng(seed)
    strength = np.random.default_rng(1).normal(0, 1, (SPECIES, SPECIES))
    strength = (strength + strength.T) / 2
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE systems (id INTEGER PRIMARY KEY, numbers BLOB, positions BLOB, energy REAL)")
        db.execute("CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT)")
        db.execute("INSERT INTO about VALUES ('count', ?)", (str(count),))
        for row in range(count):
            numbers = rng.integers(0, SPECIES, ATOMS)
            positions = rng.uniform(0, 6, (ATOMS, 3)).astype(np.float32)
            distance = np.linalg.norm(positions[:, None] - positions[None], axis=-1) + 10 * np.eye(ATOMS)
            energy = float((strength[numbers[:, None], numbers[None]] * np.exp(-distance)).sum())
            db.execute("INSERT INTO systems VALUES (?, ?, ?, ?)", (row, pack(numbers), pack(positions), energy))


def pack(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def unpack(blob):
    return torch.from_numpy(np.load(io.BytesIO(blob)))


class SystemsDataset(Dataset):
    def __init__(self, path):
        self.path = path
        with self.connect() as db:
            (count,) = db.execute("SELECT value FROM about WHERE key = 'count'").fetchone()
        self.count = int(count)

    def connect(self):
        return sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        db = self.connect()
        query = "SELECT numbers, positions, energy FROM systems WHERE id = ?"
        numbers, positions, energy = db.execute(query, (index,)).fetchone()
        db.close()
        return unpack(numbers), unpack(positions), torch.tensor(energy, dtype=torch.float32)


class Interaction(nn.Module):
    def __init__(self, dim, basis):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(basis, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.inner = nn.Linear(dim, dim, bias=False)
        self.outer = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, x, features, envelope):
        weights = self.filter(features) * envelope[..., None]
        message = (weights * self.inner(x)[:, None]).sum(2)
        return x + self.outer(message)


class ContinuousFilter(nn.Module):
    def __init__(self, dim=32, basis=16, blocks=2):
        super().__init__()
        self.embed = nn.Embedding(SPECIES, dim)
        self.register_buffer("centres", torch.linspace(0, CUTOFF, basis))
        self.blocks = nn.ModuleList(Interaction(dim, basis) for _ in range(blocks))
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))
        self.register_buffer("no_self", 1 - torch.eye(ATOMS))

    def forward(self, numbers, positions):
        distance = torch.cdist(positions, positions)
        features = torch.exp(-4 * (distance[..., None] - self.centres) ** 2)
        envelope = 0.5 * (torch.cos(distance * (np.pi / CUTOFF)) + 1) * (distance < CUTOFF) * self.no_self
        x = self.embed(numbers)
        for block in self.blocks:
            x = block(x, features, envelope)
        return self.readout(x).sum((1, 2))


class EnergyTrainer:
    def __init__(self, path, epochs=5, batch_size=32, lr=2e-3):
        self.dataset = SystemsDataset(path)
        self.loader = DataLoader(self.dataset, batch_size=batch_size, shuffle=True, drop_last=True)
        self.model = ContinuousFilter()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, fused=True)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, epochs * len(self.loader))
        self.epochs = epochs

    def train(self):
        for epoch in range(self.epochs):
            total = 0.0
            for numbers, positions, energy in self.loader:
                loss = nn.functional.l1_loss(self.model(numbers, positions), energy)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                total += loss.item()
            print(f"epoch {epoch}: energy error {total / len(self.loader):.3f}")


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "systems.db"
        write_database(path, 3200)
        EnergyTrainer(path).train()


if __name__ == "__main__":
    main()

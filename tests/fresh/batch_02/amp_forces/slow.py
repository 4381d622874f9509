"""Energies of small atomic clusters from symmetry-function fingerprints, one network per element."""

import copy
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class AtomsDataset(Dataset):
    """Random clusters: a fingerprint per atom and the derivative blocks between neighbours."""

    def __init__(self, count, atoms=6, fps=10, seed=0):
        rng = np.random.default_rng(seed)
        self.fingerprints = rng.normal(size=(count, atoms, fps)).astype(np.float32)
        self.elements = rng.integers(0, 2, (count, atoms))
        weight = rng.normal(size=(2, fps))
        per_atom = np.tanh((self.fingerprints * weight[self.elements]).sum(-1))
        self.energy = per_atom.sum(1).astype(np.float32)
        self.primes = rng.normal(size=(count, atoms, fps, 3)).astype(np.float32) * 0.1
        self.forces = (self.primes.sum(2) * per_atom[..., None]).astype(np.float32)

    def __len__(self):
        return len(self.energy)

    def __getitem__(self, i):
        return {
            "fp": torch.from_numpy(self.fingerprints[i]),
            "element": torch.from_numpy(self.elements[i]),
            "primes": torch.from_numpy(self.primes[i]),
            "energy": torch.tensor(self.energy[i]),
            "forces": torch.from_numpy(self.forces[i]),
        }


def collate_amp(items):
    atoms, fps = items[0]["fp"].shape
    rows = len(items) * atoms
    blocks = [block for item in items for block in item["primes"]]
    fprimes = torch.zeros(0, 3 * rows)
    for n, block in enumerate(blocks):
        row = torch.zeros(fps, 3 * rows)
        row[:, 3 * n : 3 * n + 3] = block
        fprimes = torch.cat((fprimes, row))
    index = torch.arange(len(items)).repeat_interleave(atoms)
    merged = {key: torch.cat([item[key] for item in items]) for key in ("fp", "element", "forces")}
    return merged | {"index": index, "fprimes": fprimes, "energy": torch.stack([i["energy"] for i in items])}


class BPNN(nn.Module):
    def __init__(self, fps, hidden=96):
        super().__init__()
        self.elementwise = nn.ModuleList(
            nn.Sequential(nn.Linear(fps, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1))
            for _ in range(2)
        )

    def forward(self, batch):
        fp = batch["fp"].requires_grad_(True)
        both = torch.stack([net(fp).squeeze(-1) for net in self.elementwise], 1)
        atomic = both.gather(1, batch["element"][:, None]).squeeze(1)
        energy = torch.zeros(len(batch["energy"])).index_add(0, batch["index"], atomic)
        gradient = torch.autograd.grad(energy.sum(), fp, create_graph=True)[0]
        forces = -(gradient.reshape(1, -1) @ batch["fprimes"]).view(-1, 3)
        return energy, forces


class Trainer:
    def __init__(self, model, loaders, epochs, force_coefficient=0.3):
        self.model, self.loaders, self.epochs, self.alpha = model, loaders, epochs, force_coefficient
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.best = (float("inf"), None)

    def loss(self, batch):
        energy, forces = self.model(batch)
        return (energy - batch["energy"]).pow(2).mean() + self.alpha * (forces - batch["forces"]).pow(2).mean()

    def train(self):
        for epoch in range(self.epochs):
            for batch in self.loaders["train"]:
                loss = self.loss(batch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            validation = np.mean([self.loss(batch).item() for batch in self.loaders["val"]])
            print(f"epoch {epoch} train {loss.item():.4f} val {validation:.4f}")
            if validation < self.best[0]:
                self.best = (validation, copy.deepcopy(self.model.state_dict()))


def main():
    torch.manual_seed(0)
    train_set, val_set = AtomsDataset(2400), AtomsDataset(84, seed=1)
    loaders = {
        "train": DataLoader(train_set, batch_size=12, shuffle=True, collate_fn=collate_amp),
        "val": DataLoader(val_set, batch_size=12, collate_fn=collate_amp),
    }
    trainer = Trainer(BPNN(10), loaders, epochs=3)
    trainer.train()
    with tempfile.TemporaryFile() as file:
        torch.save(trainer.best[1], file)


if __name__ == "__main__":
    main()

"""Which factors bind to a piece of DNA? Intervals come from a BED file, letters from the genome."""

import argparse
import itertools
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FACTORS, WIDTH = 8, 200


def write_intervals(path, genome_length, count, rng):
    """Tab-separated lines: chromosome, start, end and one 0 or 1 for each factor."""
    starts = rng.integers(0, genome_length - WIDTH, count)
    bound = rng.random((count, FACTORS)) < 0.2
    with open(path, "w") as file:
        for start, row in zip(starts, bound):
            marks = "\t".join("1" if mark else "0" for mark in row)
            file.write(f"chr1\t{start}\t{start + WIDTH}\t{marks}\n")


class BedIntervals(Dataset):
    def __init__(self, path, genome):
        self.genome = genome
        self.letters = np.eye(4, dtype=np.float32)
        self.file = open(path, "rb")  # noqa: SIM115
        self.offsets = [0]
        for line in self.file:
            self.offsets.append(self.offsets[-1] + len(line))

    def __len__(self):
        return len(self.offsets) - 1

    def read_line(self, index):
        self.file.seek(self.offsets[index])
        return self.file.readline().decode()

    def __getitem__(self, index):
        _, start, end, *marks = self.read_line(index).split("\t")
        piece = self.genome[int(start) : int(end)]
        sequence = self.letters[piece].T
        return torch.from_numpy(np.ascontiguousarray(sequence)), torch.tensor([float(mark) for mark in marks])


class DeepBind(nn.Module):
    def __init__(self, filters=96):
        super().__init__()
        self.motifs = nn.Sequential(
            nn.Conv1d(4, filters, 19, padding=9),
            nn.BatchNorm1d(filters),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Conv1d(filters, filters, 7, padding=3),
            nn.BatchNorm1d(filters),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
        )
        self.classifier = nn.Sequential(nn.Linear(filters, 128), nn.ReLU(), nn.Linear(128, FACTORS))

    def forward(self, x):
        return self.classifier(self.motifs(x))


def train_epoch(model, loader, optimizer, limit):
    loss_fn, total = nn.BCEWithLogitsLoss(), 0.0
    for sequences, marks in itertools.islice(loader, limit):
        loss = loss_fn(model(sequences), marks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / limit


def main(args, directory):
    rng = np.random.default_rng(490)
    torch.manual_seed(491)
    genome = rng.integers(0, 4, args.genome_length).astype(np.uint8)
    path = Path(directory) / "peaks.bed"
    write_intervals(path, args.genome_length, args.intervals, rng)
    loader = DataLoader(BedIntervals(path, genome), args.batch_size, shuffle=True, drop_last=True)
    model = DeepBind()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        loss = train_epoch(model, loader, optimizer, args.batches)
        print(f"epoch {epoch}: loss {loss:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--genome-length", type=int, default=1_000_000)
    parser.add_argument("--intervals", type=int, default=12_000)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--batches", type=int, default=40, help="an epoch is this many batches")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        main(arguments, folder)

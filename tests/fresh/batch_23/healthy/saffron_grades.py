"""Grades saffron from spectra of its extracts; evaluated after each epoch, the best weights are kept on disk."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn


class Spectra:
    """Spectra in one tensor, in shuffled batches."""

    def __init__(self, count: int, bands: int, grades: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.grades = torch.randint(0, grades, (count,), generator=generator)
        places = torch.linspace(0, 1, bands)
        peaks = 0.5 + 0.1 * torch.randn(count, 1, generator=generator)
        lines = torch.exp(-(((places - peaks) / (0.02 + 0.02 * self.grades.view(-1, 1))) ** 2))
        self.values = lines.unsqueeze(1) + 0.4 * torch.randn(count, 1, bands, generator=generator)

    def batches(self, size: int, shuffle: bool) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(len(self.grades)) if shuffle else torch.arange(len(self.grades))
        for chosen in order.split(size):
            yield self.values[chosen], self.grades[chosen]

    def __len__(self) -> int:
        return len(self.grades)


class Unit(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(before, after, 9, stride=2, padding=4, bias=False)
        self.norm = nn.BatchNorm1d(after)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.norm(self.conv(values)))


class SaffronNet(nn.Module):
    def __init__(self, grades: int, width: int) -> None:
        super().__init__()
        self.units = nn.Sequential(
            Unit(1, width), Unit(width, 2 * width), Unit(2 * width, 4 * width), Unit(4 * width, 4 * width)
        )
        self.head = nn.Linear(4 * width, grades)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(self.units(values).mean(dim=2))


def train_epoch(model: SaffronNet, spectra: Spectra, optimizer: torch.optim.Optimizer, size: int) -> float:
    model.train()
    total = torch.zeros(())
    for values, grades in spectra.batches(size, shuffle=True):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(values), grades)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(grades)
    return (total / len(spectra)).item()


@torch.inference_mode()
def evaluate(model: SaffronNet, spectra: Spectra, size: int) -> float:
    model.eval()
    hits = torch.zeros((), dtype=torch.long)
    for values, grades in spectra.batches(size, shuffle=False):
        hits += (model(values).argmax(dim=1) == grades).sum()
    return hits.item() / len(spectra)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spectra", type=int, default=4096)
    parser.add_argument("--held-out", type=int, default=512)
    parser.add_argument("--bands", type=int, default=512)
    parser.add_argument("--grades", type=int, default=6)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    torch.manual_seed(43)
    known = Spectra(args.spectra, args.bands, args.grades, seed=43)
    held_out = Spectra(args.held_out, args.bands, args.grades, seed=44)
    model = SaffronNet(args.grades, args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    best = 0.0
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "best.pt"
        for epoch in range(args.epochs):
            loss = train_epoch(model, known, optimizer, args.batch_size)
            accuracy = evaluate(model, held_out, 4 * args.batch_size)
            schedule.step()
            if accuracy > best:
                best = accuracy
                torch.save(model.state_dict(), kept)
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.3f}")
        model.load_state_dict(torch.load(kept, weights_only=True))
    print(f"kept accuracy {best:.3f}")


if __name__ == "__main__":
    main()

"""Learns an embedding of butterfly wing measurements in which wings of one population lie close together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass
class Options:
    populations: int = 60
    wings: int = 40
    points: int = 180
    per_batch: int = 16
    of_each: int = 6
    steps: int = 600
    width: int = 512
    embedding: int = 64
    margin: float = 0.3
    lr: float = 5e-4
    seed: int = 41


class Wings:
    """Landmarks on wings, by population, and batches with some wings of some populations."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.generator = torch.Generator().manual_seed(options.seed)
        centres = torch.randn(options.populations, 1, options.points, generator=self.generator)
        noise = torch.randn(options.populations, options.wings, options.points, generator=self.generator)
        self.values = centres + 5.0 * noise

    def batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        options = self.options
        for _ in range(options.steps):
            chosen = torch.randperm(options.populations, generator=self.generator)[: options.per_batch]
            wings = torch.rand(options.per_batch, options.wings, generator=self.generator).argsort(dim=1)
            values = self.values[chosen.unsqueeze(1), wings[:, : options.of_each]]
            yield values.flatten(0, 1), chosen.repeat_interleave(options.of_each)


class Embedder(nn.Module):
    def __init__(self, options: Options) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(options.points, options.width),
            nn.LayerNorm(options.width),
            nn.GELU(),
            nn.Linear(options.width, options.width),
            nn.LayerNorm(options.width),
            nn.GELU(),
            nn.Linear(options.width, options.width),
            nn.LayerNorm(options.width),
            nn.GELU(),
            nn.Linear(options.width, options.embedding),
        )

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return functional.normalize(self.layers(values), dim=1)


class BatchHardTriplet(nn.Module):
    """For each wing the farthest of its own population and the nearest of all others."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embedded: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        distances = torch.cdist(embedded, embedded)
        same = labels.unsqueeze(0) == labels.unsqueeze(1)
        farthest = distances.masked_fill(~same, -torch.inf).amax(dim=1)
        nearest = distances.masked_fill(same, torch.inf).amin(dim=1)
        hardest = farthest - nearest
        return functional.relu(hardest + self.margin).mean()


class Progress:
    def __init__(self, every: int) -> None:
        self.every = every
        self.losses: list[torch.Tensor] = []

    def add(self, step: int, loss: torch.Tensor) -> None:
        self.losses.append(loss.detach())
        if (step + 1) % self.every == 0:
            print(f"step {step + 1}: loss {torch.stack(self.losses).mean().item():.4f}")
            self.losses.clear()


def fit(options: Options) -> Embedder:
    model = Embedder(options)
    criterion = BatchHardTriplet(options.margin)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    progress = Progress(every=100)
    for step, (values, labels) in enumerate(Wings(options).batches()):
        loss = criterion(model(values), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress.add(step, loss)
    return model


if __name__ == "__main__":
    given = Options()
    torch.manual_seed(given.seed)
    fit(given)

"""Predicts who buys a ticket for which film: a factorization machine with a deep part, trained with accelerate."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIELDS = (2000, 800, 60, 24, 31, 7, 12, 40, 18, 5, 90, 300)


@dataclass
class Settings:
    visits: int = 80_000
    batch_size: int = 1024
    epochs: int = 4
    factors: int = 32
    hidden: tuple[int, ...] = (256, 128)
    lr: float = 2e-3
    seed: int = 77


class Visits(Dataset):
    """Visits of a web shop for tickets; a batch is indexed at once."""

    def __init__(self, settings: Settings) -> None:
        generator = torch.Generator().manual_seed(settings.seed)
        columns = [torch.randint(size, (settings.visits,), generator=generator) for size in FIELDS]
        tastes = [torch.randn(size, 4, generator=generator) for size in FIELDS]
        chosen = torch.stack([taste[column] for taste, column in zip(tastes, columns, strict=True)], dim=1)
        score = (chosen[:, 0] * chosen[:, 1]).sum(dim=1) + (chosen[:, 2] * chosen[:, 5]).sum(dim=1)
        self.fields = torch.stack(columns, dim=1)
        self.bought = (score + torch.randn(settings.visits, generator=generator) > 0.5).float()

    def __len__(self) -> int:
        return len(self.bought)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.fields[index], self.bought[index]

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.tensor(indices)
        return self.fields[chosen], self.bought[chosen]


class FieldEmbedding(nn.Module):
    """One table for all fields, with the offset of each field."""

    def __init__(self, dim: int, std: float = 0.05) -> None:
        super().__init__()
        offsets = torch.tensor((0, *FIELDS[:-1])).cumsum(dim=0)
        self.register_buffer("offsets", offsets)
        self.table = nn.Embedding(sum(FIELDS), dim)
        nn.init.normal_(self.table.weight, std=std)

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        return self.table(fields + self.offsets)


class PairwiseInteraction(nn.Module):
    """The sum of the products of all pairs of fields, factor by factor."""

    def __init__(self, fields: int) -> None:
        super().__init__()
        self.fields = fields
        self.pairs = list(combinations(range(fields), 2))

    def forward(self, factors: torch.Tensor) -> torch.Tensor:
        first, second = zip(*self.pairs, strict=True)
        return (factors[:, list(first)] * factors[:, list(second)]).sum(dim=1)


class TicketModel(nn.Module):
    def __init__(self, factors: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = FieldEmbedding(1)
        self.factors = FieldEmbedding(factors)
        self.interaction = PairwiseInteraction(len(FIELDS))
        sizes = [len(FIELDS) * factors, *hidden]
        layers: list[nn.Module] = []
        for inputs, outputs in zip(sizes, sizes[1:], strict=False):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), nn.Dropout(0.1)]
        self.deep = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        factors = self.factors(fields)
        linear = self.weights(fields).sum(dim=(1, 2))
        pairs = self.interaction(factors).sum(dim=1)
        return self.bias + linear + pairs + self.deep(factors.flatten(1)).squeeze(1)


def as_is(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch


def main(settings: Settings) -> None:
    set_seed(settings.seed)
    accelerator = Accelerator(cpu=True)
    model = TicketModel(settings.factors, settings.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    loader = DataLoader(
        Visits(settings), batch_size=settings.batch_size, shuffle=True, drop_last=True, collate_fn=as_is
    )
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(settings.epochs):
        losses = []
        for fields, bought in loader:
            with accelerator.autocast():
                loss = criterion(model(fields), bought)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
        accelerator.print(f"epoch {epoch}: {torch.stack(losses).mean().item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main(Settings())

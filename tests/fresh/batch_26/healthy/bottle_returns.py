"""Will a bottle be returned? Embeddings and a cross network over a table that lies in tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    rows: int = 120_000
    sizes: tuple[int, ...] = (400, 60, 24, 12, 7, 1000)
    numbers: int = 10
    dim: int = 16
    width: int = 512
    batch_size: int = 512
    epochs: int = 2
    lr: float = 1e-3


def table(config: Config) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(23)
    columns = [torch.randint(0, size, (config.rows,), generator=generator) for size in config.sizes]
    numbers = torch.randn(config.rows, config.numbers, generator=generator)
    score = numbers[:, 0] * numbers[:, 1] + (columns[2] % 3 - 1) + 0.5 * torch.randn(config.rows, generator=generator)
    return torch.stack(columns, dim=1), numbers, (score > 0).float()


class Cross(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(width, width)

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        return first * self.mix(x) + x


class ReturnNet(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        sizes = torch.tensor(config.sizes)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes)
        self.embedding = nn.Embedding(sum(config.sizes), config.dim)
        inputs = config.dim * len(config.sizes) + config.numbers
        self.crosses = nn.ModuleList(Cross(inputs) for _ in range(3))
        self.deep = nn.Sequential(
            nn.Linear(inputs, config.width), nn.ReLU(), nn.Linear(config.width, config.width), nn.ReLU()
        )
        self.head = nn.Linear(inputs + config.width, 1)

    def forward(self, columns: Tensor, numbers: Tensor) -> Tensor:
        first = torch.cat([self.embedding(columns + self.offsets).flatten(1), numbers], dim=1)
        x = first
        for cross in self.crosses:
            x = cross(first, x)
        return self.head(torch.cat([x, self.deep(first)], dim=1)).squeeze(1)


def main(config: Config) -> None:
    torch.manual_seed(23)
    columns, numbers, returned = table(config)
    model = ReturnNet(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(config.epochs):
        total = torch.zeros(())
        batches = torch.randperm(config.rows).split(config.batch_size)
        for rows in batches:
            loss = criterion(model(columns[rows], numbers[rows]), returned[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total.item() / len(batches):.4f}")


if __name__ == "__main__":
    main(Config())

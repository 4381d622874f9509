"""Types of single cells from counts of their genes: a dense network on rows that are taken a batch at a time."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    cells: int = 12_000
    genes: int = 1500
    types: int = 10
    hidden: int = 256
    batch: int = 256
    epochs: int = 8
    lr: float = 1e-3


def counts(cfg, seed):
    g = torch.Generator().manual_seed(seed)
    level = torch.randn(cfg.types, cfg.genes, generator=g).mul(0.7).exp()
    kind = torch.randint(cfg.types, (cfg.cells,), generator=g)
    depth = torch.rand(cfg.cells, 1, generator=g) + 0.2
    return torch.poisson(depth * level[kind], generator=g), kind


def normalised(table):
    return (1e4 * table / table.sum(1, keepdim=True)).log1p()


class CellNet(nn.Sequential):
    def __init__(self, cfg):
        super().__init__(
            nn.Linear(cfg.genes, cfg.hidden),
            nn.BatchNorm1d(cfg.hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.2),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(inplace=True),
            nn.Linear(cfg.hidden, cfg.types),
        )


def evaluate(model, table, kind):
    model.eval()
    with torch.inference_mode():
        right = (model(table).argmax(1) == kind).float().mean().item()
    model.train()
    return right


def main(cfg):
    torch.manual_seed(0)
    table, kind = counts(cfg, seed=15)
    table = normalised(table)
    held = cfg.cells // 10
    model = CellNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs)
    for epoch in range(cfg.epochs):
        losses = []
        for index in (torch.randperm(cfg.cells - held) + held).split(cfg.batch):
            loss = F.cross_entropy(model(table[index]), kind[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        schedule.step()
        right = evaluate(model, table[:held], kind[:held])
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f} accuracy {right:.3f}")


if __name__ == "__main__":
    main(Config())

"""Counts which moths came to the light traps: a small network labels the crops, and metrics follow its training."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
)


def make_crops(count: int, species: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, species, (count,), generator=generator)
    patterns = torch.randn(species, 3, 32, 32, generator=generator)
    crops = 0.4 * patterns[labels] + torch.randn(count, 3, 32, 32, generator=generator)
    return TensorDataset(crops, labels)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norms[0](self.first(maps)))
        return torch.relu(maps + self.norms[1](self.second(inner)))


class MothNet(nn.Module):
    def __init__(self, species: int, width: int = 20) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 4, stride=4), nn.BatchNorm2d(width), nn.ReLU())
        self.stages = nn.Sequential(Residual(width), Residual(width))
        self.head = nn.Linear(width, species)

    def forward(self, crops: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(crops)).mean(dim=(2, 3)))


def make_metrics(species: int) -> MetricCollection:
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(species),
            "f1": MulticlassF1Score(species),
            "precision": MulticlassPrecision(species),
            "recall": MulticlassRecall(species),
            "auroc": MulticlassAUROC(species, thresholds=50),
            "confusion": MulticlassConfusionMatrix(species),
        }
    )


class Training:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.data = make_crops(args.crops, args.species, seed=args.seed)
        self.loader = DataLoader(self.data, batch_size=args.batch_size, shuffle=True, drop_last=True)
        self.model = MothNet(args.species)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
        self.criterion = nn.CrossEntropyLoss()
        self.metrics = make_metrics(args.species)

    def epoch(self) -> dict[str, torch.Tensor]:
        self.model.train()
        self.metrics.reset()
        for crops, labels in self.loader:
            logits = self.model(crops)
            loss = self.criterion(logits, labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.metrics.update(logits.detach(), labels)
        return self.metrics.compute()

    def run(self) -> None:
        for epoch in range(self.args.epochs):
            scores = self.epoch()
            line = ", ".join(f"{name} {value.item():.3f}" for name, value in scores.items() if value.numel() == 1)
            missed = scores["confusion"].fill_diagonal_(0).sum(dim=1).argmax().item()
            print(f"epoch {epoch}: {line}, most often missed: species {missed}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--crops", type=int, default=7680)
    parser.add_argument("--species", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    Training(args).run()


if __name__ == "__main__":
    main()

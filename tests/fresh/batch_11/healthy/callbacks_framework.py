"""A small training framework with callbacks, and a classifier of tabular rows that is trained with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Batches:
    """Shuffled batches of tensors that have one row per sample."""

    def __init__(self, *tensors: Tensor, size: int, shuffle: bool):
        self.tensors, self.size, self.shuffle = tensors, size, shuffle

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        count = len(self.tensors[0])
        if not self.shuffle:
            yield from zip(*(t.split(self.size) for t in self.tensors), strict=True)
            return
        for rows in torch.randperm(count).split(self.size):
            yield tuple(t[rows] for t in self.tensors)


class Callback:
    def after_step(self, run: Run) -> None:
        pass

    def after_epoch(self, run: Run) -> None:
        pass


class MeanLoss(Callback):
    """Sums up on the device and reads once per epoch."""

    def __init__(self):
        self.total, self.steps = torch.zeros(()), 0

    def after_step(self, run: Run) -> None:
        self.total += run.loss.detach()
        self.steps += 1

    def after_epoch(self, run: Run) -> None:
        run.report["loss"] = self.total.item() / self.steps
        self.total.zero_()
        self.steps = 0


class Schedule(Callback):
    def __init__(self, scheduler):
        self.scheduler = scheduler

    def after_step(self, run: Run) -> None:
        self.scheduler.step()


class Validate(Callback):
    def __init__(self, batches: Batches, every: int):
        self.batches, self.every = batches, every

    @torch.inference_mode()
    def after_epoch(self, run: Run) -> None:
        if (run.epoch + 1) % self.every:
            return
        run.model.eval()
        hits = torch.stack([(run.model(x).argmax(1) == y).float().mean() for x, y in self.batches])
        run.model.train()
        run.report["accuracy"] = hits.mean().item()


@dataclass
class Run:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    callbacks: list[Callback]
    epoch: int = 0

    def fit(self, batches: Batches, epochs: int) -> None:
        for self.epoch in range(epochs):
            self.report: dict[str, float] = {}
            for x, y in batches:
                self.loss = F.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad(set_to_none=True)
                self.loss.backward()
                self.optimizer.step()
                for callback in self.callbacks:
                    callback.after_step(self)
            for callback in self.callbacks:
                callback.after_epoch(self)
            print(self.epoch, {name: round(value, 4) for name, value in self.report.items()})


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(40_000, 54)
    y = (x[:, :7] + 0.3 * torch.randn(40_000, 7)).argmax(1)
    model = nn.Sequential(
        nn.Linear(54, 512), nn.BatchNorm1d(512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 7)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    train = Batches(x[:32_000], y[:32_000], size=512, shuffle=True)
    valid = Batches(x[32_000:], y[32_000:], size=4000, shuffle=False)
    steps = 10 * 63
    callbacks = [
        MeanLoss(),
        Schedule(torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)),
        Validate(valid, every=5),
    ]
    Run(model, optimizer, callbacks).fit(train, epochs=10)


if __name__ == "__main__":
    main()

"""Faults of carillon bells by the vibration after a stroke: several labels for each stroke, trained with accelerate."""

import argparse
import math
import os
import tempfile

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MultilabelAccuracy,
    MultilabelAUROC,
    MultilabelAveragePrecision,
    MultilabelF1Score,
)

FAULTS = ("crack", "loose clapper", "worn bearing", "detuned", "rusted crown", "bent yoke")


def strike_bells(count: int, length: int, seed: int) -> TensorDataset:
    """Decaying partials of a bell, changed a little by each of its faults."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(length) / length
    faults = (torch.rand(count, len(FAULTS), generator=generator) < 0.3).float()
    base = 14 + 10 * torch.rand(count, 1, generator=generator)
    signals = torch.zeros(count, 2, length)
    for number, ratio in enumerate((0.5, 1.0, 1.2, 1.5, 2.0)):
        detune = 1 + 0.06 * faults[:, 3:4] * (number % 2)
        decay = 2 + number + 4 * faults[:, :1] * (number > 1)
        phase = 2 * math.pi * (base * ratio * detune * time)
        partial = torch.exp(-decay * time) * torch.sin(phase)
        signals[:, 0] += partial
        signals[:, 1] += partial * torch.cos(2 * math.pi * (2 + 3 * faults[:, 5:6]) * time)
    rattle = torch.randn(count, length, generator=generator) * torch.exp(-6 * time)
    signals[:, 0] += 0.5 * faults[:, 1:2] * rattle
    hum = torch.sin(2 * math.pi * 4 * time) * faults[:, 2:3]
    signals[:, 1] += 0.4 * hum
    signals += 0.15 * (1 + faults[:, 4:5, None]) * torch.randn(count, 2, length, generator=generator)
    return TensorDataset(signals, faults.long())


class BellNet(nn.Module):
    def __init__(self, width: int, faults: int):
        super().__init__()
        self.stem = nn.Conv1d(2, width, 9, stride=4, padding=4)
        self.blocks = nn.ModuleList()
        for _ in range(4):
            block = nn.Sequential(
                nn.Conv1d(width, width, 5, padding=2),
                nn.GroupNorm(4, width),
                nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 1),
            )
            self.blocks.append(block)
        self.head = nn.Linear(2 * width, faults)

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.stem(signals))
        for block in self.blocks:
            x = F.max_pool1d(x + block(x), 2)
        return self.head(torch.cat([x.mean(2), x.amax(2)], dim=1))


def build_metrics() -> MetricCollection:
    labels = len(FAULTS)
    return MetricCollection(
        {
            "accuracy": MultilabelAccuracy(labels),
            "f1": MultilabelF1Score(labels),
            "auroc": MultilabelAUROC(labels),
            "ap": MultilabelAveragePrecision(labels),
        },
        compute_groups=False,
    )


def describe(metrics: MetricCollection) -> str:
    return ", ".join(f"{name} {value.item():.3f}" for name, value in metrics.compute().items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strokes", type=int, default=4800)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1657)
    args = parser.parse_args()

    set_seed(args.seed)
    accelerator = Accelerator(cpu=True)
    train_set, test_set = random_split(strike_bells(args.strokes, args.length, args.seed), [0.9, 0.1])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=200)
    model = BellNet(args.width, len(FAULTS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train_loader))
    model, optimizer, scheduler, train_loader, test_loader = accelerator.prepare(
        model, optimizer, scheduler, train_loader, test_loader
    )
    train_metrics, test_metrics = build_metrics(), build_metrics()

    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(args.epochs):
            model.train()
            train_metrics.reset()
            for signals, faults in train_loader:
                logits = model(signals)
                loss = F.binary_cross_entropy_with_logits(logits, faults.float())
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                train_metrics.update(logits.detach().sigmoid(), faults)
            accelerator.print(f"epoch {epoch} train: {describe(train_metrics)}")

            model.eval()
            test_metrics.reset()
            with torch.inference_mode():
                for signals, faults in test_loader:
                    test_metrics.update(model(signals).sigmoid(), faults)
            accelerator.print(f"epoch {epoch} test: {describe(test_metrics)}")
            accelerator.save(accelerator.unwrap_model(model).state_dict(), os.path.join(folder, "last.pt"))


if __name__ == "__main__":
    main()

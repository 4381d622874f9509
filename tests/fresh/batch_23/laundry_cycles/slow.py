"""Detects faults of washing machines from the currents and vibrations of a cycle."""

from __future__ import annotations

import argparse
import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

FAULTS = ("none", "bearing", "drain", "heater", "imbalance")


def make_cycles(count: int, length: int, channels: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, len(FAULTS), (count,), generator=generator)
    time_axis = torch.linspace(0, 1, length).view(1, 1, length)
    rates = 6.0 + 5.0 * labels.view(-1, 1, 1) + torch.rand(count, channels, 1, generator=generator)
    cycles = torch.sin(6.28 * rates * time_axis) + 1.2 * torch.randn(count, channels, length, generator=generator)
    return TensorDataset(cycles, labels)


class CycleNet(nn.Module):
    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((channels, width), (width, 2 * width), (2 * width, 2 * width), (2 * width, 4 * width)):
            layers += [nn.Conv1d(before, after, 7, padding=3), nn.BatchNorm1d(after), nn.ReLU(), nn.MaxPool1d(2)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(4 * width, len(FAULTS)))

    def forward(self, cycles: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(cycles).mean(dim=2))


@torch.no_grad()
def evaluate(model: CycleNet, loader: DataLoader) -> tuple[float, float]:
    model.eval()
    loss = hits = count = 0
    for cycles, labels in loader:
        logits = model(cycles)
        loss += nn.functional.cross_entropy(logits, labels, reduction="sum")
        hits += (logits.argmax(dim=1) == labels).sum()
        count += len(labels)
    model.train()
    return float(loss / count), float(hits / count)


class Best:
    """The weights with the lowest validation loss."""

    def __init__(self) -> None:
        self.loss = float("inf")
        self.weights: dict[str, torch.Tensor] = {}

    def offer(self, loss: float, model: CycleNet) -> None:
        if loss < self.loss:
            self.loss = loss
            self.weights = copy.deepcopy(model.state_dict())


def train(args: argparse.Namespace) -> None:
    data = make_cycles(args.cycles, args.length, args.channels, args.seed)
    train_set, valid_set = random_split(data, [0.7, 0.3], generator=torch.Generator().manual_seed(args.seed))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=4 * args.batch_size)
    model = CycleNet(args.channels, args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    best, step, started = Best(), 0, time.perf_counter()
    for epoch in range(args.epochs):
        for cycles, labels in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(cycles), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step % args.eval_every == 0:
                valid_loss, accuracy = evaluate(model, valid_loader)
                best.offer(valid_loss, model)
                print(f"step {step}: validation loss {valid_loss:.4f}, accuracy {accuracy:.3f}")
        print(f"epoch {epoch} done after {time.perf_counter() - started:.1f} s")
    model.load_state_dict(best.weights)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=1900)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--channels", type=int, default=6)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--eval-every", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=97)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    train(args)


if __name__ == "__main__":
    main()

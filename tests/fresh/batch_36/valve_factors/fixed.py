"""Faults of hydraulic valves from a grid of sensors and times: layers whose weights are Kronecker products."""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAULTS = ["none", "lag", "leak", "jam", "cavitation", "drift"]


def run_bench(cycles: int, sensors: int, times: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pressures along a line while a valve opens and closes, disturbed in a way of its own by each fault."""
    rng = np.random.default_rng(seed)
    faults = rng.integers(len(FAULTS), size=cycles)
    time = np.linspace(0, 1, times)
    place = np.linspace(0, 1, sensors)[:, None]
    data = np.empty((cycles, sensors, times), dtype=np.float32)
    for number, fault in enumerate(faults):
        name = FAULTS[fault]
        opening = 0.25 + 0.05 * rng.standard_normal() + (0.08 if name == "lag" else 0)
        closing = 0.75 + 0.05 * rng.standard_normal()
        rise = 1 / (1 + np.exp(-40 * (time - opening - 0.1 * place)))
        fall = 1 / (1 + np.exp(40 * (time - closing - 0.1 * place)))
        pressure = rise * (fall if name != "jam" else 0.4 + 0.6 * fall)
        if name == "leak":
            pressure = pressure * (1 - 0.35 * place * time)
        elif name == "cavitation":
            pressure = pressure + 0.3 * pressure * np.sin(2 * np.pi * 9 * time + 3 * place)
        elif name == "drift":
            pressure = pressure + 0.3 * time
        data[number] = pressure + 0.25 * rng.standard_normal((sensors, times))
    return data, faults


class Cycles(Dataset):
    def __init__(self, data: np.ndarray, faults: np.ndarray):
        self.data = torch.from_numpy(data).flatten(1)
        self.faults = torch.from_numpy(faults)

    def __len__(self) -> int:
        return len(self.faults)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.data[index], self.faults[index]


class KroneckerLinear(nn.Module):
    """A linear map of the flattened grid with one small matrix for the sensors and one for the times."""

    def __init__(self, rows: tuple[int, int], columns: tuple[int, int]):
        super().__init__()
        (rows_in, rows_out), (columns_in, columns_out) = rows, columns
        self.left = nn.Parameter(torch.randn(rows_out, rows_in) / rows_in**0.5)
        self.right = nn.Parameter(torch.randn(columns_out, columns_in) / columns_in**0.5)
        self.bias = nn.Parameter(torch.zeros(rows_out * columns_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = x.unflatten(1, (self.left.shape[1], self.right.shape[1]))
        return (self.left @ (grid @ self.right.T)).flatten(1) + self.bias


class ValveNet(nn.Module):
    def __init__(self, sensors: int, times: int, hidden: tuple[int, int], faults: int):
        super().__init__()
        rows, columns = hidden
        self.layers = nn.ModuleList(
            [
                KroneckerLinear((sensors, rows), (times, columns)),
                KroneckerLinear((rows, rows), (columns, columns)),
                KroneckerLinear((rows, rows), (columns, columns)),
            ]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(rows * columns) for _ in self.layers])
        self.head = nn.Linear(rows * columns, faults)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            y = F.gelu(norm(layer(x)))
            x = y if number == 0 else x + y
        return self.head(x)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> tuple[float, float]:
    model.eval()
    loss, right = 0.0, 0
    for cycles, faults in loader:
        logits = model(cycles)
        loss += F.cross_entropy(logits, faults, reduction="sum").item()
        right += (logits.argmax(1) == faults).sum().item()
    return loss / len(loader.dataset), right / len(loader.dataset)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=3000)
    parser.add_argument("--sensors", type=int, default=16)
    parser.add_argument("--times", type=int, default=64)
    parser.add_argument("--hidden", type=int, nargs=2, default=[24, 64])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    data, faults = run_bench(args.cycles, args.sensors, args.times, args.seed)
    border = int(0.9 * args.cycles)
    train_loader = DataLoader(Cycles(data[:border], faults[:border]), args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(Cycles(data[border:], faults[border:]), 100)
    model = ValveNet(args.sensors, args.times, tuple(args.hidden), len(FAULTS))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train_loader))
    with tempfile.TemporaryDirectory() as folder:
        best = float("inf")
        for epoch in range(args.epochs):
            model.train()
            losses = []
            for cycles, labels in train_loader:
                loss = F.cross_entropy(model(cycles), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
                losses.append(loss.detach())
            test_loss, accuracy = evaluate(model, test_loader)
            mean = torch.stack(losses).mean().item()
            print(f"epoch {epoch}: train {mean:.4f}, test {test_loss:.4f}, accuracy {accuracy:.3f}")
            if test_loss < best:
                best = test_loss
                torch.save(model.state_dict(), Path(folder, "best.pt"))


if __name__ == "__main__":
    main()

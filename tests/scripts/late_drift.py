"""As many steps as three hours of 50 ms hold, of a third of a millisecond each; late in the run something piles up.

late_drift.py {hooks,history,nothing} [STEPS]
"""

from __future__ import annotations

import sys

import torch
from torch import nn


class Watch:
    """Keeps the last norms of a layer's output."""

    def __init__(self) -> None:
        self.norms: list[float] = []

    def __call__(self, module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        self.norms.append(float(output.detach().norm()))
        del self.norms[:-10]


def main(kind: str, steps: int = 216_000) -> None:
    """Trains; from two thirds of the steps on there is one more hook, or a longer history, every so often."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(4096, 32)
    target = data.sum(1, keepdim=True)
    watch, history, late = Watch(), [0.0], steps * 2 // 3
    for step in range(steps):
        at = step * 16 % 4096
        if kind == "hooks" and step >= late and step % max(steps // 216, 1) == 0:
            model[0].register_forward_hook(watch)
        loss = nn.functional.mse_loss(model(data[at : at + 16]), target[at : at + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if kind == "history" and step >= late:
            history.append(loss.item())
            loss_so_far = sum(history) / len(history)
    print(f"{loss.item():.4f}", f"{loss_so_far:.4f}" if kind == "history" else "")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

"""What `weight_decay=` saves of a penalty on the squares of the weights that stands in the loss.

    python tests/benchmarks/costs/weight_decay.py

A step of layers of one width: forward and backward pass, and the optimizer's step. Medians of three times nine steps,
three forms in turns: with the penalty, with `weight_decay=`, with neither. Prints, for each optimizer, size and number
of threads, the saving as a share of what the penalty adds, and as a share of the recorded time of its ops, without the
accumulation of gradients. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

OPTIMIZERS: tuple[tuple[str, type[torch.optim.Optimizer], dict[str, Any]], ...] = (
    ("SGD", torch.optim.SGD, {"lr": 1e-3}),
    ("SGD with momentum", torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    ("Adam", torch.optim.Adam, {"lr": 1e-4}),
    ("Adam, fused", torch.optim.Adam, {"lr": 1e-4, "fused": True}),
)
SIZES = ((4, 64), (24, 64), (4, 512), (24, 512), (4, 1536))  # layers, their width
STEPS, TURNS = 9, 3


class Step:
    """A model of its own with its optimizer. penalty: stands in the loss; decay: of the optimizer."""

    def __init__(self, layers: int, width: int, made: tuple[Any, dict[str, Any]], penalty: float, decay: float) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))
        self.weights = [p for p in self.model.parameters() if p.ndim > 1]
        self.optimizer = made[0](self.weights, weight_decay=decay, **made[1])
        self.x, self.penalty = torch.randn(8, width), penalty

    def __call__(self) -> None:
        """One step."""
        loss = self.model(self.x).square().mean()
        if self.penalty:
            loss = loss + self.penalty * sum(p.square().sum() for p in self.weights)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def median_s(self) -> float:
        """Seconds of a step."""
        times = []
        for _ in range(STEPS):
            began = time.perf_counter()
            self()
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    def recorded_s(self) -> float:
        """Recorded seconds of the penalty's ops in a step, the accumulation of gradients left out."""
        with profile(activities=[ProfilerActivity.CPU]) as recorded:
            self()
            self()
        us = 0.0
        for event in recorded.events():
            above = event.cpu_parent.name if event.cpu_parent else ""
            if event.name in ("aten::square", "aten::sum") and not above:
                us += event.cpu_time_total
            if event.name.endswith(("evaluate_function: SumBackward0", "evaluate_function: PowBackward0")):
                us += event.cpu_time_total
        return us / 2 / 1e6


def main() -> None:
    """The table."""
    for threads, (name, *made), (layers, width) in itertools.product((1, 2), OPTIMIZERS, SIZES):
        torch.set_num_threads(threads)
        forms = [
            Step(layers, width, tuple(made), penalty, decay)
            for penalty, decay in ((1e-4, 0.0), (0.0, 2e-4), (0.0, 0.0))
        ]
        for form in forms:
            form()
        turns = [[form.median_s() for form in forms] for _ in range(TURNS)]
        summed, decayed, bare = (statistics.median(turn[at] for turn in turns) for at in range(3))
        adds, recorded = summed - bare, forms[0].recorded_s()
        print(
            f"{threads} {name:18} {layers:2} x {width:4}: {(summed - decayed) / adds:.2f} of {1e3 * adds:.2f} ms, "
            f"{(summed - decayed) / recorded:.2f} of the recorded {1e3 * recorded:.2f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()

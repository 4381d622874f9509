"""What a stack trace costs that anomaly detection stores in a step, by what capture's timing says of as long a stack.

`python tests/benchmarks/costs/stack_traces.py`: three models, as they are and inside of more modules, in CPU time.
"""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import traceback as stored

from advisor.capture.inside.facts import stack_traces

_STEPS, _TIMES, _WIDTH = 30, 5, 48


class Ops(torch.nn.Module):
    """Small ops on one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(_WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Views and sums."""
        x = x * self.weight
        for at in range(12):
            x = torch.tanh(x.unsqueeze(0)[0] + 0.1 * at)
        return x


def models() -> Iterator[tuple[str, torch.nn.Module]]:
    """Their names, and one of each."""
    nn = torch.nn
    yield "mlp", nn.Sequential(*(one for _ in range(8) for one in (nn.Linear(_WIDTH, _WIDTH), nn.ReLU())))
    yield "ops", Ops()
    yield (
        "norms",
        nn.Sequential(*(one for _ in range(4) for one in (nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.LayerNorm(_WIDTH)))),
    )


def cpu_us(step: Callable[[], None]) -> float:
    """CPU time of a step."""
    began_ns = time.thread_time_ns()
    for _ in range(_STEPS):
        step()
    return (time.thread_time_ns() - began_ns) / _STEPS / 1e3


def stacks_of(step: Callable[[], None]) -> list[tuple[int, int]]:
    """(frames, files) of each stack that a step stores."""
    found: list[tuple[int, int]] = []
    whole: Any = stored.format_stack

    def noted() -> list[str]:
        frames = traceback.extract_stack()[:-1]
        found.append((len(frames), len({one.filename for one in frames})))
        text: list[str] = whole()
        return text

    stored.format_stack = noted
    try:
        step()
    finally:
        stored.format_stack = whole
    return found


def measured(model: torch.nn.Module) -> str:
    """How many stacks, and what one costs by the model."""
    x = torch.randn(64, _WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    cpu_us(step)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        stacks = stacks_of(step)
    frames, files = (statistics.mean(column) for column in zip(*stacks, strict=True))
    ratios = []
    for _ in range(_TIMES):
        off_us = cpu_us(step)
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            on_us, cost = cpu_us(step), stack_traces.cost() or {}
        modelled_us = cost["us"] + cost["frame_us"] * frames + cost["file_us"] * files
        ratios.append((on_us - off_us) / len(stacks) / modelled_us)
    return f"{len(stacks)} stacks of {frames:.1f} frames in {files:.1f} files: {statistics.median(ratios):.2f}"


def main() -> None:
    """Prints a line for each."""
    torch.set_num_threads(1)
    for deeper in (0, 3, 8):
        for name, model in models():
            for _ in range(deeper):
                model = torch.nn.Sequential(model)  # noqa: PLW2901 - the same, one module deeper
            print(f"{name}, {deeper} modules deeper: {measured(model)}", flush=True)


if __name__ == "__main__":
    main()

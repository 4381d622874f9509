"""What a loop over `x[:, i]` takes, against one over `x.unbind(1)`, beside what its zeros and sums take.

    python tests/benchmarks/costs/gradients_of_parts.py

Forward and backward pass of `h = a * h + x[:, i]`, medians of three times seven runs each. Prints, for each shape and
number of threads, what `unbind` saves over the recorded time of the zeros and sums of the whole size in the backward
pass (one profile of three runs). Measure on a machine that does nothing else.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

SHAPES = list(itertools.product((16, 64), (16, 60, 120), (64, 256, 512)))
RUNS, PROFILED = 7, 3
NODE = "evaluate_function: SelectBackward0"


def step(x: torch.Tensor, a: torch.Tensor, at_once: bool) -> None:
    """One pass forward and backward."""
    made = x * 1.0
    parts = made.unbind(1) if at_once else None
    h = torch.zeros_like(made[:, 0])
    for i in range(made.shape[1]):
        h = a * h + (parts[i] if parts else made[:, i])
    torch.autograd.grad(h.sum(), [x, a])


def median_s(call: Callable[[], None]) -> float:
    """Seconds of a call."""
    call()
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def needless_s(call: Callable[[], None]) -> float:
    """Recorded seconds of the zeros and sums in one call."""
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(PROFILED):
            call()
    us = 0.0
    for event in recorded.events():
        parent = event.cpu_parent.name if event.cpu_parent else ""
        zeros = event.name == "aten::zeros" and "select_backward" in parent
        if zeros or (event.name in ("aten::add", "aten::add_") and NODE in parent):
            us += event.cpu_time_total
    return us / PROFILED / 1e6


def main() -> None:
    """The table."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for samples, parts, width in SHAPES:
            x, a = torch.randn(samples, parts, width, requires_grad=True), torch.rand(width, requires_grad=True)
            turns = [(median_s(lambda: step(x, a, False)), median_s(lambda: step(x, a, True))) for _ in range(3)]  # noqa: B023
            slow, fast = (statistics.median(turn[at] for turn in turns) for at in (0, 1))
            needless = needless_s(lambda: step(x, a, False))  # noqa: B023
            print(
                threads,
                (samples, parts, width),
                f"{(slow - fast) / needless:.2f} of {1e3 * needless:.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()

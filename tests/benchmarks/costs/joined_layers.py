"""What equal layers take one after the other, and as one op: forward and backward pass, without the optimizer.

    python tests/benchmarks/costs/joined_layers.py      about two minutes; one thread, in its CPU time

`heads`: k linear layers on one input, concatenated, against one layer with k times the columns. `slices`: k linear
layers on slices of one tensor, stacked, against `torch.baddbmm`. For each size the median of `REPEATS` runs of each,
in turns. `joined / arithmetic` is the range `layers.joined` of `advisor/constants.toml`: what the joined op takes, over
the time of its arithmetic at the rate of a product of 512 x 512 matrices, where that is at least `LEAST_US`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

REPEATS = 20
LEAST_US = 100
COUNTS = (4, 8, 16, 64)
# Rows of the input, columns of it, columns of each layer's output.
Pair = tuple[Callable[[], None], Callable[[], None]]
SIZES = ((32, 64, 16), (32, 168, 48), (256, 64, 64), (1536, 192, 16))


def heads(k: int, rows: int, before: int, after: int) -> Pair:
    """Layers on one input."""
    x = torch.randn(rows, before, requires_grad=True)
    layers = nn.ModuleList(nn.Linear(before, after) for _ in range(k))
    joined = nn.Linear(before, k * after)
    grad = torch.randn(rows, k * after)

    def apart() -> None:
        torch.cat([layer(x) for layer in layers], 1).backward(grad)

    def together() -> None:
        joined(x).backward(grad)

    return apart, together


def slices(k: int, rows: int, before: int, after: int) -> Pair:
    """Layers on slices of one tensor."""
    x = torch.randn(rows, k, before)
    layers = nn.ModuleList(nn.Linear(before, after) for _ in range(k))
    weight = nn.Parameter(torch.randn(k, before, after) * before**-0.5)
    bias = nn.Parameter(torch.zeros(k, 1, after))
    grad = torch.randn(rows, k, after)

    def apart() -> None:
        torch.stack([layer(x[:, i]) for i, layer in enumerate(layers)], 1).backward(grad)

    def together() -> None:
        torch.baddbmm(bias, x.transpose(0, 1), weight).transpose(0, 1).backward(grad)

    return apart, together


def best_us(*runs: Callable[[], None]) -> list[float]:
    """The least time of each, in turns."""
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(REPEATS):
        for run, times in zip(runs, took, strict=True):
            begin = time.thread_time()
            run()
            times.append(1e6 * (time.thread_time() - begin))
    return [statistics.median(times) for times in took]


def main() -> None:
    """Prints all sizes, and both ranges."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    a, few = torch.randn(512, 512), torch.randn(4)
    product_us, call_us = best_us(lambda: torch.mm(a, a), lambda: torch.add(few, few))
    rate = 2 * 512**3 / product_us  # operations per µs
    print(f"{rate / 1e3:.1f} GFLOP/s, {call_us:.2f} µs per op call")
    fixed, slower = [], []
    for kind, products in ((heads, 3), (slices, 2)):
        for rows, before, after in SIZES:
            for k in COUNTS:
                if k * rows * before * after > 1e9:
                    continue
                apart, together = best_us(*kind(k, rows, before, after))
                work_us = products * 2 * k * rows * before * after / rate
                fixed.append((apart - together) / (k - 1))
                if work_us >= LEAST_US:
                    slower.append(together / work_us)
                print(
                    f"{kind.__name__:6} {k:3} x [{rows}, {before}] -> {after}: {apart:9.0f} µs apart, {together:9.0f} "
                    f"joined ({together / apart:.2f}); arithmetic {work_us:8.0f}, joined / arithmetic "
                    f"{together / work_us:5.2f}; {fixed[-1]:6.1f} µs less per layer ({fixed[-1] / call_us:.1f} calls)"
                )
    for name, values in (("µs less per layer", fixed), ("joined / arithmetic", slower)):
        low, middle, high = (statistics.quantiles(values, n=10)[at] for at in (0, 4, 8))
        print(f"{name}: {middle:.2f} ({low:.2f} to {high:.2f}), n = {len(values)}")


if __name__ == "__main__":
    main()

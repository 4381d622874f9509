"""Sums of outer products beside the matrix product that replaces them, with the backward pass.

    python tests/benchmarks/costs/outer_products.py

Of each size, samples x numbers of each, the ways are timed in turns: medians of forward and backward pass, less what
the same ops take for two samples of two numbers. The last lines are the least and the most share that is left, where
two million numbers and more are written out, and where fewer are.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch

Tensor = torch.Tensor
_MOST_BYTES, _FEWEST_NUMBERS, _MANY, _REPEATS = 130e6, 16384, 2e6, 9
_WRITTEN_OUT: list[Callable[[Tensor], Tensor]] = [
    lambda x: torch.einsum("bi,bj->bij", x, x).mean(0),
    lambda x: torch.bmm(x.unsqueeze(2), x.unsqueeze(1)).sum(0),
    lambda x: (x.unsqueeze(2) * x.unsqueeze(1)).mean(0),
]


def product(x: Tensor) -> Tensor:
    """What replaces each of them."""
    return x.T @ x / len(x)


def both_us(of: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """One forward and backward pass."""
    x.grad = None
    began = time.perf_counter()
    y = of(x)
    y.backward(torch.ones_like(y))
    return (time.perf_counter() - began) * 1e6


def medians_us(ways: list[Callable[[Tensor], Tensor]], samples: int, numbers: int) -> list[float]:
    """Of each way for this size."""
    x = torch.randn(samples, numbers, requires_grad=True)
    times = [[both_us(way, x) for way in ways] for _ in range(_REPEATS + 2)][2:]
    return [statistics.median(of) for of in zip(*times, strict=True)]


def main() -> None:
    ways = [*_WRITTEN_OUT, product]
    calls_us = medians_us(ways, 2, 2)
    found: dict[str, list[float]] = {"many": [], "few": []}
    for samples, numbers in itertools.product((32, 128, 256, 1024, 4096), (16, 32, 64, 128, 256)):
        written = samples * numbers**2
        if written * 4 > _MOST_BYTES or written < _FEWEST_NUMBERS:
            continue
        took = [max(us - call, 0.0) for us, call in zip(medians_us(ways, samples, numbers), calls_us, strict=True)]
        left = [took[-1] / us for us in took[:-1]]
        shown = " ".join(f"{one:.2f}" for one in left)
        print(f"{samples:5} x {numbers:3}: {took[-1]:7.0f} µs, left of einsum, bmm, mul: {shown}", flush=True)
        found["many" if written >= _MANY else "few"] += left
    for name, shares in found.items():
        print(f"{name}: {min(shares):.2f} to {max(shares):.2f} (n = {len(shares)})")


if __name__ == "__main__":
    main()

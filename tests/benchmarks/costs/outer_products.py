"""Sums of outer products beside the matrix product that replaces them, with the backward pass.

    python tests/benchmarks/costs/outer_products.py

Of each size, samples x numbers of each, the ways are timed in turns: medians of forward and backward pass, less what
the same ops take for two samples of two numbers. The last lines are the least and the most share that is left, where
two million numbers and more are written out, and where fewer are.
"""

from __future__ import annotations

import itertools

import torch
from both_passes import Way, medians_us

Tensor = torch.Tensor
_MOST_BYTES, _FEWEST_NUMBERS, _MANY, _REPEATS = 130e6, 16384, 2e6, 9
_WRITTEN_OUT: list[Way] = [
    lambda x: torch.einsum("bi,bj->bij", x, x).mean(0),
    lambda x: torch.bmm(x.unsqueeze(2), x.unsqueeze(1)).sum(0),
    lambda x: (x.unsqueeze(2) * x.unsqueeze(1)).mean(0),
]


def product(x: Tensor) -> Tensor:
    """What replaces each of them."""
    return x.T @ x / len(x)


def rows(samples: int, numbers: int) -> Tensor:
    """A tensor of that size, with a gradient."""
    return torch.randn(samples, numbers, requires_grad=True)


def main() -> None:
    ways = [*_WRITTEN_OUT, product]
    calls_us = medians_us(ways, rows(2, 2), _REPEATS)
    found: dict[str, list[float]] = {"many": [], "few": []}
    for samples, numbers in itertools.product((32, 128, 256, 1024, 4096), (16, 32, 64, 128, 256)):
        written = samples * numbers**2
        if written * 4 > _MOST_BYTES or written < _FEWEST_NUMBERS:
            continue
        took = [
            max(us - call, 0.0)
            for us, call in zip(medians_us(ways, rows(samples, numbers), _REPEATS), calls_us, strict=True)
        ]
        left = [took[-1] / us for us in took[:-1]]
        shown = " ".join(f"{one:.2f}" for one in left)
        print(f"{samples:5} x {numbers:3}: {took[-1]:7.0f} µs, left of einsum, bmm, mul: {shown}", flush=True)
        found["many" if written >= _MANY else "few"] += left
    for name, shares in found.items():
        print(f"{name}: {min(shares):.2f} to {max(shares):.2f} (n = {len(shares)})")


if __name__ == "__main__":
    main()

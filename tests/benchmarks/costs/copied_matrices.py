"""What a broadcasting product of a few matrices and many vectors takes, against one that does not copy the matrices.

    python tests/benchmarks/costs/copied_matrices.py

`matrices @ vectors` with matrices of (groups, rows, columns) and vectors of (samples, groups, columns, 1), against
`torch.einsum("grc,sgck->sgrk", ...)`, forward and backward pass, in turns; medians. Prints, for each shape and number
of threads, the share that is saved. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

import torch

SHAPES = [
    (groups, size, samples)
    for groups, size, samples in itertools.product((2, 4, 16), (8, 32, 64), (64, 512, 4096))
    if groups * size * size * samples <= 1 << 25
]
TURNS = 9


def took(call: Callable[[], torch.Tensor], inputs: list[torch.Tensor], times: int) -> float:
    """Seconds of some calls with their backward passes."""
    began = time.perf_counter()
    for _ in range(times):
        torch.autograd.grad(call().sum(), inputs)
    return time.perf_counter() - began


def saved(groups: int, size: int, samples: int, columns: int) -> float:
    """The share of the broadcasting product that goes."""
    matrices = torch.randn(groups, size, size, requires_grad=True)
    vectors = torch.randn(samples, groups, size, columns, requires_grad=True)
    inputs = [matrices, vectors]
    ways = (lambda: matrices @ vectors, lambda: torch.einsum("grc,sgck->sgrk", matrices, vectors))
    times = max(1, int(2e-3 / took(ways[0], inputs, 1)))
    turns = [[took(way, inputs, times) for way in ways] for _ in range(TURNS)]
    slow, fast = (statistics.median(turn[at] for turn in turns) for at in (0, 1))
    return 1 - fast / slow


def main() -> None:
    """The table."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for shape in SHAPES:
            shares = [saved(*shape, columns) for columns in (1, 4)]
            print(threads, shape, *(f"{share:.2f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()

"""Products of all pairs of rows beside what replaces them, with the backward pass: shares of their time that are left.

    python tests/benchmarks/costs/pair_products.py

Of each size the ways are timed in turns, and the medians divided. The last lines are the least and the most: of sums
over the pairs, and of the products of each pair where it has eight numbers or more.
"""

from __future__ import annotations

import itertools

import torch
from both_passes import Way, medians_us

Tensor = torch.Tensor
_MOST_BYTES, _FEWEST_NUMBERS, _REPEATS = 120e6, 2048, 7


def left(x: Tensor) -> tuple[float, float]:
    """Shares of the pairs' time that the sums, and the products of each pair, take."""
    i, j = torch.triu_indices(x.shape[1], x.shape[1], 1)
    ways: list[Way] = [
        lambda x: (x[:, i] * x[:, j]).sum(1),
        lambda x: 0.5 * (x.sum(1).square() - x.square().sum(1)),
        lambda x: (x[:, i] * x[:, j]).sum(-1),
        lambda x: (x @ x.mT)[:, i, j],
    ]
    medians = medians_us(ways, x, _REPEATS)
    return medians[1] / medians[0], medians[3] / medians[2]


def main() -> None:
    summed, each = [], []
    for samples, rows, numbers in itertools.product((128, 1024, 4096), (8, 16, 26, 39), (1, 8, 16, 64)):
        pairs = rows * (rows - 1) // 2
        if samples * pairs * numbers * 4 > _MOST_BYTES or samples * rows * numbers < _FEWEST_NUMBERS:
            continue
        one, other = left(torch.randn(samples, rows, numbers, requires_grad=True))
        print(f"{samples:5} samples, {rows:2} rows of {numbers:2} numbers: {one:.2f} {other:.2f}", flush=True)
        summed.append(one)
        each += [other] if numbers >= 8 else []
    for name, found in (("summed", summed), ("each", each)):
        print(f"{name}: {min(found):.2f} to {max(found):.2f} (n = {len(found)})")


if __name__ == "__main__":
    main()

"""Bounds on the centre of paired differences that assume symmetry and nothing else (Wilcoxon's signed ranks).

Random order within a pair makes pure noise symmetric, whatever its shape: that is all these bounds need.
"""

from __future__ import annotations

import functools

import numpy as np

from advisor.arrays import Floats


def walsh_averages(values: Floats) -> Floats:
    """The means of all pairs of values, each value with itself included, sorted; shape (n (n + 1) / 2,)."""
    first, second = np.triu_indices(len(values))
    return np.sort((values[first] + values[second]) / 2.0)


def hodges_lehmann(values: Floats) -> float:
    """The median of the Walsh averages: a centre that one wild pair cannot move."""
    return float(np.median(walsh_averages(values)))


def bounds(values: Floats, alpha: float) -> tuple[float, float]:
    """One-sided lower and upper bound of the centre, each missed with at most `alpha`.

    Raises ValueError where so few values cannot reach `alpha` (see `possible`).
    """
    skip = _skipped(len(values), alpha)
    averages = walsh_averages(values)
    return float(averages[skip]), float(averages[-1 - skip])


def possible(count: int, alpha: float) -> bool:
    """Whether `count` values can reach `alpha` at all: all signs equal has probability 2**-count."""
    return bool(2.0**-count <= alpha)


@functools.cache
def _skipped(count: int, alpha: float) -> int:
    """How many Walsh averages lie beyond the bound: the largest w with P(W <= w) <= alpha for signed ranks W."""
    if not possible(count, alpha):
        raise ValueError(f"{count} values cannot reach {alpha:g}")
    # ways[w] = number of subsets of the ranks 1..count whose sum is w.
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1.0
    for rank in range(1, count + 1):
        ways[rank:] += ways[:-rank].copy()
    reached = np.cumsum(ways) / 2.0**count
    return int(np.searchsorted(reached, alpha, side="right")) - 1

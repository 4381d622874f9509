"""Twenty steps of a long window, for what would otherwise take longer with each step that was recorded."""

from __future__ import annotations

import numpy as np

from advisor.trace.events import Ints

# More steps say the same more slowly: a saving is told from a step's work, and steps repeat.
MOST_STEPS = 20


def spread(count: int) -> Ints:
    """Which of so many steps are looked at: all up to twenty, else the first, the last and as many evenly between."""
    if count <= MOST_STEPS:
        return np.arange(count)
    return np.linspace(0, count - 1, MOST_STEPS).round().astype(np.int64)


def in_a_row(lengths_ns: Ints) -> slice:
    """Consecutive steps that are like all: all up to twenty, else the twenty whose mean length is nearest to the mean.

    Of several such those nearest to the middle of the window.
    """
    count = len(lengths_ns)
    if count <= MOST_STEPS:
        return slice(0, count)
    sums = np.concatenate(([0], np.cumsum(lengths_ns)))
    off = np.abs((sums[MOST_STEPS:] - sums[:-MOST_STEPS]) * count - sums[-1] * MOST_STEPS)
    from_middle = np.abs(2 * np.arange(len(off)) - (count - MOST_STEPS))
    first = int(np.lexsort((from_middle, off))[0])
    return slice(first, first + MOST_STEPS)

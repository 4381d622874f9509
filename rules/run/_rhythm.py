"""Work that comes every few steps, seen in the times of steps without the profiler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

# Fewer turns than this are no rhythm.
_FEWEST = 6
# Of the turns at least so many have their long step at the same place.
_MOSTLY = 0.8


class Rhythm(Struct, frozen=True):
    """Every so many steps one is longer than those between.

    longer_us    by how much, the median of the turns
    low, high    share of all time that goes if that step becomes like the others; high: if all steps become like the
                 median of the others
    mean_us      of all steps
    """

    longer_us: float
    low: float
    high: float
    mean_us: float


def rhythm(times_us: Sequence[float], every: int) -> Rhythm | None:
    """The rhythm of that period in consecutive un-profiled steps; None where most turns do not show it."""
    turns = len(times_us) // every if every > 1 else 0
    if turns < _FEWEST:
        return None
    times = np.reshape(np.asarray(times_us[: turns * every], float), (turns, every))
    place = int(np.argmax(np.median(times, axis=0)))
    others = np.delete(times, place, axis=1)
    rest_us = float(np.median(others))
    longer_us = float(np.median(times[:, place])) - rest_us
    between = rest_us + longer_us / 2
    if (times[:, place] > between).mean() < _MOSTLY or (others > between).mean() > 1 - _MOSTLY:
        return None
    mean_us = float(times.mean())
    low = longer_us / every / mean_us
    return Rhythm(longer_us, low, max(low, 1 - rest_us / mean_us), mean_us)

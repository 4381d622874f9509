"""Step times that rise as the training goes on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from advisor.api import RankRecord

# Fewer steps cannot be told from noise in eight parts.
_LEAST_TIMES, _PARTS = 80, 8
# Of seven turns from part to part, six go up in one of two hundred runs by chance; both halves must rise, too, so that
# one jump (a neighbour that came) is none.
_RISES, _IN_EACH_HALF = 6, 0.2
# What grows with the number of steps is zero at the first of them: the line through the middles of the first and the
# last quarter of the steps before the window leads there. Fewer steps have no quarters to speak of.
_LEAST_BEFORE, _QUARTERS = 40, 4
# Steps that begin anew now and then: a burst of other work lasts a step or two of five. Of 15 pairs of neighbouring
# blocks two thirds rise by chance in one of seven runs; that ops of the window grow is known besides.
_BLOCK, _MOSTLY_RISES = 5, 2 / 3
# Ten ranks and more are close to the normal distribution, of which one in twenty lies beyond 1.645.
_LEAST_RANKS, _BY_CHANCE = 10, 1.645


def grown_by_times(record: RankRecord) -> tuple[float, float] | None:
    """Share of a step that its growth takes: (halfway through the run so far, at its end); None where no times rise.

    Growth goes on: the longer the training, the more of a step it is.
    """
    steps = record.steps
    window = [step for file in record.files if file.role == "profile" for step in file.steps.values()]
    before = np.asarray(steps.unprofiled_us[: steps.timed_before or 0])
    if len(before) < _LEAST_BEFORE or not window or rise_of(steps.unprofiled_us) is None:
        return None
    size = len(before) // _QUARTERS
    early, late = float(np.median(before[:size])), float(np.median(before[-size:]))
    slope = (late - early) / (len(before) - size)
    # The last step before the window was spent on the profiler's own start.
    start = early - slope * (min(window) - 1 - len(before) + size / 2)
    end = float(np.median(np.array_split(np.asarray(steps.unprofiled_us), _PARTS)[-1]))
    if not 0 < start < end:
        return None
    return (end - start) / (end + start), 1 - start / end


def grown_in_rounds(times_us: Sequence[float]) -> tuple[float, float] | None:
    """Share of a step that its growth takes where it begins anew now and then, as in each epoch.

    (mean over the run so far, where it was longest); None where times do not mostly rise, or there are too few.
    """
    if len(times_us) < _LEAST_TIMES:
        return None
    blocks = [float(np.median(part)) for part in np.array_split(np.asarray(times_us), len(times_us) // _BLOCK)]
    rises = sum(later > earlier for earlier, later in pairwise(blocks))
    start, mean, end = min(blocks), float(np.mean(blocks)), max(blocks)
    if rises < _MOSTLY_RISES * (len(blocks) - 1) or not 0 < start < mean:
        return None
    return 1 - start / mean, 1 - start / end


def end_of_rise(part_us: Sequence[float], record: RankRecord) -> float | None:
    """What a step takes at the end of the run so far, µs, where steps rise and this part of them does; None elsewhere.

    part_us: what each profiled step spent in that part. The window is a short piece of the run, so the part rises where
    the order of its values is one that chance makes in one of twenty windows (Spearman's rank correlation).
    """
    rise = rise_of(record.steps.unprofiled_us)
    if rise is None or len(part_us) < _LEAST_RANKS:
        return None
    _, at, count = np.unique(part_us, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[at]  # equal values share a rank
    if len(count) == 1:
        return None
    correlation = float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])
    return rise[1] if correlation * (len(ranks) - 1) ** 0.5 >= _BY_CHANCE else None


def rise_of(times_us: Sequence[float]) -> tuple[float, float] | None:
    """Median time of the first and of the last eighth of the run, where those between rise from one to the other."""
    if len(times_us) < _LEAST_TIMES:
        return None
    parts = [float(np.median(part)) for part in np.array_split(np.asarray(times_us), _PARTS)]
    rises = sum(later > earlier for earlier, later in pairwise(parts))
    whole, half = parts[-1] - parts[0], _PARTS // 2
    halves = (parts[half - 1] - parts[0], parts[-1] - parts[half])
    steady = whole > 0 and min(halves) >= _IN_EACH_HALF * whole
    return (parts[0], parts[-1]) if rises >= _RISES and steady else None

"""Training steps that become slower over a run, and the lines that this time goes to.

It rests on what capture keeps of the whole run: ordinary step times in some dozens of stretches, and where the loop's
thread was sampled in each (`advisor.capture.record.StepTrend`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs

from advisor.arrays import Floats, Ints
from advisor.capture.record import RankRecord, StepTrend
from advisor.computed import Missing
from advisor.model import Source

# The first stretch warms up. Fewer stretches, or fewer steps, cannot be told from noise.
_WARMING, _LEAST_STRETCHES, _LEAST_STEPS = 1, 12, 100
# Parts of the run that are compared: its first third, and its last quarter.
_EARLY, _LATE = 3, 4
# Chance alone ranks the stretches like this in one of a thousand runs (a normal deviate, one-sided).
_BEYOND_CHANCE = 3.1
# A line's share of samples rose where chance alone does that in one of a thousand comparisons.
_ROSE = 3.1
# Each half rises by itself where chance alone does that in one of a hundred runs, and by this part of the whole rise: a
# neighbour that comes is one jump.
_IN_HALF, _OF_WHOLE = 2.33, 0.2
# The slowdown has begun where so much of it is there, and stays.
_BEGUN = 0.25
_MOST_LINES = 3
# Samples of either loop that tell two: as many as open a window there (capture/inside/steps/requests.py).
_SAMPLES = 6

_Floats = Floats


class SlowerLine(Struct, frozen=True):
    """A line whose share of the step rose. early_us, late_us: its time per step in the early and the late part."""

    source: Source
    loop: Source | None  # the line of the training loop that it was reached from, where it is another
    early_us: float
    late_us: float


class StepDrift(Struct, frozen=True):
    """Ordinary steps at the beginning and at the end of a run; times without waits for a core, µs.

    early_us, late_us  median over the segments of the first third, and of the last quarter
    mean_us            over all segments
    began              training iterations before the slowdown became permanent
    steps              number of compared training steps
    lines              those whose share of the step rose, the largest increase first: where the time goes
    explained          part of the increase that is spent at these; 0 if all lines became equally slower, as they do if
                       the machine becomes slower
    error              standard error of `explained`, from the number of samples
    throughout         whether steps became slower in both halves of the run
    """

    early_us: float
    late_us: float
    mean_us: float
    began: int
    steps: int
    lines: tuple[SlowerLine, ...]
    explained: float
    error: float
    throughout: bool

    @classmethod
    def compute(cls, record: RankRecord) -> StepDrift:
        """The slowdown. Missing if there are too few steps, or if they did not become slower."""
        trend = _of_last_loop(record.run.trend) if record.run is not None else StepTrend()
        count = len(trend.usual_us) - _WARMING
        if count < _LEAST_STRETCHES or sum(trend.steps[_WARMING:]) < _LEAST_STEPS:
            raise Missing("too few steps were recorded to see whether they become slower")
        times_us = _own_us(trend)[_WARMING:]
        early, late = slice(0, count // _EARLY), slice(count - count // _LATE, count)
        early_us, late_us = float(np.median(times_us[early])), float(np.median(times_us[late]))
        if late_us <= early_us or kendall(times_us) < _BEYOND_CHANCE:
            raise Missing("steps did not become slower over the run")
        lines, explained, error = _explained(trend, early, late, early_us, late_us)
        return cls(
            early_us=early_us,
            late_us=late_us,
            mean_us=float(np.average(times_us, weights=trend.steps[_WARMING:])),
            began=trend.first[_WARMING + _onset(times_us, early_us, late_us)],
            steps=sum(trend.steps[_WARMING:]),
            lines=lines,
            explained=explained,
            error=error,
            throughout=_rises_in_halves(times_us, late_us - early_us),
        )


def _of_last_loop(trend: StepTrend) -> StepTrend:
    """The stretches of the loop that the run ends in: steps of a pretraining before it are others, not faster ones."""
    early, late = len(trend.steps) // _EARLY, len(trend.steps) - len(trend.steps) // _LATE
    loops: dict[tuple[str, int], Ints] = {}
    for line in trend.lines:
        place = line.loop_file, line.loop_line
        loops[place] = loops.get(place, np.zeros(len(trend.steps), np.int64)) + np.asarray(line.hits)
    first = {place for place, hits in loops.items() if hits[:early].any()}
    last = {place for place, hits in loops.items() if hits[late:].any()}
    seen = [sum(int(loops[one].sum()) for one in each) for each in (first, last)]
    if not first.isdisjoint(last) or min(seen) < _SAMPLES:
        return trend
    begun = 1 + max(int(np.flatnonzero(loops[place])[-1]) for place in first)
    of_each = {name: entries[begun:] for name, entries in structs.asdict(trend).items() if name != "lines"}
    return StepTrend(**of_each, lines=[structs.replace(line, hits=line.hits[begun:]) for line in trend.lines])


def _own_us(trend: StepTrend) -> _Floats:
    """Ordinary steps of each stretch without the share of it in which the loop's thread had no core."""
    spent, queued = np.asarray(trend.spent_us), np.asarray([one or 0.0 for one in trend.queued_us])
    own: _Floats = np.asarray(trend.usual_us) * (1 - np.minimum(queued / np.maximum(spent, 1.0), 1.0))
    return own


def kendall(values: Sequence[float] | _Floats) -> float:
    """How far the order of the values is from chance towards rising: Kendall's S by its standard deviation."""
    count, found = len(values), np.asarray(values, dtype=float)
    later = np.sign(found[None, :] - found[:, None])
    score = float(np.triu(later, 1).sum())
    return score / math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def _rises_in_halves(times_us: _Floats, whole_us: float) -> bool:
    for half in np.array_split(times_us, 2):
        third = len(half) // 3
        more_us = float(np.median(half[-third:]) - np.median(half[:third]))
        if kendall(half) < _IN_HALF or more_us < _OF_WHOLE * whole_us:
            return False
    return True


def _onset(times_us: _Floats, early_us: float, late_us: float) -> int:
    """The first stretch after the last one that is not slower yet."""
    before = np.flatnonzero(times_us < early_us + _BEGUN * (late_us - early_us))
    return min(int(before[-1]) + 1, len(times_us) - 1) if len(before) else 0


def _explained(
    trend: StepTrend, early: slice, late: slice, early_us: float, late_us: float
) -> tuple[tuple[SlowerLine, ...], float, float]:
    """The lines whose share rose, which part of the increase they are, and how exactly samples tell that."""
    samples = np.asarray(trend.samples[_WARMING:])
    before, after = int(samples[early].sum()), int(samples[late].sum())
    if not before or not after:
        return (), 0.0, 0.0
    found = []
    for line in trend.lines:
        hits = np.asarray(line.hits[_WARMING:])
        share_before, share_after = hits[early].sum() / before, hits[late].sum() / after
        pooled = (hits[early].sum() + hits[late].sum()) / (before + after)
        chance = math.sqrt(pooled * (1 - pooled) * (1 / before + 1 / after))
        if chance and (share_after - share_before) / chance >= _ROSE:
            loop = Source(line.loop_file, line.loop_line)
            source = Source(line.file, line.line, line.function)
            same = (line.loop_file, line.loop_line) in ((line.file, line.line), ("", 0))
            found.append(SlowerLine(source, None if same else loop, share_before * early_us, share_after * late_us))
    found.sort(key=lambda one: one.early_us - one.late_us)
    more_us = late_us - early_us
    explained = sum(one.late_us - one.early_us for one in found) / more_us
    share = min(sum(one.late_us for one in found) / late_us, 1.0)
    error = math.sqrt(share * (1 - share) / after) * late_us / more_us
    return tuple(found[:_MOST_LINES]), min(explained, 1.0), error

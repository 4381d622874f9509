"""Where the level of a series of results changes: steps and slow drifts.

E-divisive with means (Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of Multivariate
Data", JASA 109, 2014; used on a continuous integration system by Daly et al., ICPE 2020): the split with the largest
energy distance between its sides is a change point if random orders of the same values seldom have one as large; then
both sides are searched. Change points in one direction are a drift where a ramp fits better than as many steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from advisor.arrays import Floats
from advisor.gate.signed_rank import hodges_lehmann

# Below ten values too few orders differ for a test at 1 %.
LEAST = 10
# A level needs three values, or one outlier would be one.
_SIDE = 3
_ALPHA = 0.01
_ORDERS = 999
# A ramp over fewer commits than these is often a step that noise has widened.
_LEAST_RAMP = 10


@dataclass(frozen=True, slots=True)
class Shift:
    """A change of the level, of logarithms.

    first, last    index of the last value before, and of the first value after it: neighbours in a step
    before, after  levels;  p: share of random orders with a split as large (of the first found, in a drift)
    """

    kind: Literal["step", "drift"]
    first: int
    last: int
    before: float
    after: float
    p: float


@dataclass(frozen=True, slots=True)
class _Point:
    """The first value of the new level."""

    at: int
    p: float


def shifts(values: Floats) -> tuple[Shift, ...]:
    """The changes in order; none in fewer than `LEAST` values. The same values always give the same answer."""
    if len(values) < LEAST:
        return ()
    points = sorted(_points(values, 0, np.random.default_rng(20140101)), key=lambda point: point.at)
    edges = [0, *(point.at for point in points), len(values)]
    levels = [hodges_lehmann(values[a:b]) for a, b in itertools.pairwise(edges)]
    found: list[Shift] = []
    for group in _runs(levels):
        first, last = group[0], group[-1]  # change points first..last lead from level `first` to level `last + 1`
        region = (edges[first], edges[last + 2])
        ramp = _ramp(values[slice(*region)], [points[i].at - region[0] for i in group])
        if ramp:
            start, end, before, after = ramp
            p = min(points[i].p for i in group)
            found.append(Shift("drift", region[0] + start, region[0] + end, before, after, p))
        else:
            found += [
                Shift("step", points[i].at - 1, points[i].at, levels[i], levels[i + 1], points[i].p) for i in group
            ]
    return tuple(found)


def _runs(levels: Sequence[float]) -> list[list[int]]:
    """Indices of change points, consecutive ones of one direction together."""
    groups: list[list[int]] = []
    for i in range(len(levels) - 1):
        up = levels[i + 1] > levels[i]
        if groups and (levels[groups[-1][-1] + 1] > levels[groups[-1][-1]]) == up:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _points(values: Floats, offset: int, rng: np.random.Generator) -> list[_Point]:
    if len(values) < 2 * _SIDE:
        return []
    at, energy = _best_split(_distances(values))
    p = _p_value(values, energy, rng)
    if p > _ALPHA:
        return []
    left = _points(values[:at], offset, rng)
    return [*left, _Point(offset + at, p), *_points(values[at:], offset + at, rng)]


def _distances(values: Floats) -> Floats:
    return np.abs(values[:, None] - values[None, :])


def _best_split(distances: Floats) -> tuple[int, float]:
    """(first index of the right side, energy) of the split with the largest energy distance, scaled by its sizes."""
    n = len(distances)
    rows = np.cumsum(np.tril(distances).sum(1))  # of the pairs within the first k values
    total = rows[-1]
    columns = np.cumsum(distances.sum(1))
    sizes = np.arange(_SIDE, n - _SIDE + 1)
    left = rows[sizes - 1]
    across = columns[sizes - 1] - 2 * left
    right = total - left - across
    m = n - sizes
    means = 2 * across / (sizes * m) - 2 * left / (sizes * (sizes - 1)) - 2 * right / (m * (m - 1))
    energy = means * sizes * m / n
    best = int(np.argmax(energy))
    return int(sizes[best]), float(energy[best])


def _p_value(values: Floats, energy: float, rng: np.random.Generator) -> float:
    """Share of random orders, the given one included, with a split of at least that energy.

    Stops as soon as it must exceed the limit; then the value is a lower bound that is above it.
    """
    distances, most = _distances(values), int(_ALPHA * (_ORDERS + 1))
    larger = 1
    for _ in range(_ORDERS):
        order = rng.permutation(len(values))
        larger += _best_split(distances[np.ix_(order, order)])[1] >= energy * (1 - 1e-12)
        if larger > most:
            return max(larger / (_ORDERS + 1), _ALPHA * 2)
    return larger / (_ORDERS + 1)


def _ramp(values: Floats, points: Sequence[int]) -> tuple[int, int, float, float] | None:
    """(last index before, first index after, level before, level after) where a ramp fits better than steps.

    Both fits are by least squares and compared by Schwarz's criterion: two levels and two ends of a ramp against a
    level and a place for each step.
    """
    n = len(values)
    if n < _LEAST_RAMP + 2:
        return None
    edges = [0, *points, n]
    steps = sum(float(np.var(values[a:b]) * (b - a)) for a, b in itertools.pairwise(edges))
    best, found = np.inf, None
    index = np.arange(n, dtype=float)
    for start in range(n - _LEAST_RAMP):
        ends = np.arange(start + _LEAST_RAMP, n)
        slope = np.clip((index[None, :] - start) / (ends - start)[:, None], 0.0, 1.0)
        centred = slope - slope.mean(1, keepdims=True)
        rise = centred @ (values - values.mean()) / (centred**2).sum(1)
        error = ((values - values.mean() - rise[:, None] * centred) ** 2).sum(1)
        at = int(np.argmin(error))
        if error[at] < best:
            before = float(values.mean() - rise[at] * slope[at].mean())
            best, found = float(error[at]), (start, int(ends[at]), before, before + float(rise[at]))
    criterion = n * np.log(max(best, 1e-300)) + 4 * np.log(n)
    return found if criterion < n * np.log(max(steps, 1e-300)) + (2 * len(points) + 1) * np.log(n) else None

"""Arithmetic on sets of half-open intervals: sorted, disjoint `(n, 2)` arrays of integer nanoseconds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.arrays import Ints, Mask

Intervals = Ints

EMPTY: Intervals = np.empty((0, 2), np.int64)
_BEFORE_ALL = -(1 << 62)


def union(start: npt.ArrayLike, end: npt.ArrayLike) -> Intervals:
    """The union of intervals given by their ends; empty and inverted ones are ignored."""
    starts, ends = np.asarray(start, np.int64), np.asarray(end, np.int64)
    keep = ends > starts
    if not keep.all():
        some = np.flatnonzero(keep)
        starts, ends = starts.take(some), ends.take(some)
    if not len(starts):
        return EMPTY
    if (starts[1:] < starts[:-1]).any():  # rows of a trace are in order already
        order = np.argsort(starts, kind="stable")
        starts, ends = starts.take(order), ends.take(order)
    reach = np.maximum.accumulate(ends)
    last = np.flatnonzero(starts[1:] > reach[:-1])
    found = np.empty((len(last) + 1, 2), np.int64)
    found[0, 0], found[-1, 1] = starts[0], reach[-1]
    found[1:, 0], found[:-1, 1] = starts.take(last + 1), reach.take(last)
    return found


def total(a: Intervals) -> int:
    """Total length of a set."""
    return int((a[:, 1] - a[:, 0]).sum())


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """The intersection of both sets."""
    if not len(a) or not len(b):
        return EMPTY
    if len(a) == 1 or len(b) == 1:  # mostly a window
        return _cut(b, a[0]) if len(a) == 1 else _cut(a, b[0])
    if len(a) > len(b):
        a, b = b, a  # the fewer are looked up among the more; what both hold is the same either way
    # Each interval of a meets a run of b's: from the first that ends after it starts to the last that starts before
    # it ends.
    low = np.searchsorted(b[:, 1], a[:, 0], side="right")
    high = np.searchsorted(b[:, 0], a[:, 1], side="left")
    counts = np.maximum(high - low, 0)
    if not counts.sum():
        return EMPTY
    rows = np.repeat(np.arange(len(a)), counts)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    others = low[rows] + offsets
    found = np.empty((len(rows), 2), np.int64)
    for side, inner in enumerate((np.maximum, np.minimum)):
        inner(a[:, side].take(rows), b[:, side].take(others), out=found[:, side])
    return found


def _cut(a: Intervals, window: Intervals) -> Intervals:
    """What lies in a set and in one interval (start, end)."""
    low, high = np.searchsorted(a[:, 1], window[0], side="right"), np.searchsorted(a[:, 0], window[1], side="left")
    found = a[low:high].copy()
    if len(found):
        found[0, 0], found[-1, 1] = max(found[0, 0], window[0]), min(found[-1, 1], window[1])
    return found


def merge(a: Intervals, b: Intervals) -> Intervals:
    """What lies in one of the sets or in both."""
    both = np.concatenate((a, b))
    return union(both[:, 0], both[:, 1])


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """The part of `a` that is not in `b`."""
    if not len(a) or not len(b):
        return a
    edges_start = np.concatenate(([np.iinfo(np.int64).min], b[:, 1]))
    edges_end = np.concatenate((b[:, 0], [np.iinfo(np.int64).max]))
    return intersect(a, np.column_stack((edges_start, edges_end)))


def starts_in(start_ns: Ints, a: Intervals) -> Mask:
    """Which of these instants are in an interval, whose end is exclusive."""
    if not len(a):
        return np.zeros(len(start_ns), bool)
    if len(start_ns) > len(a) and (start_ns[1:] >= start_ns[:-1]).all():
        # Columns of events are in order of time: it is enough to look up the edges, outside and inside by turns.
        edges = np.searchsorted(start_ns, a.ravel(), side="left")
        inside = np.arange(len(edges) + 1) % 2 == 1
        return np.repeat(inside, np.diff(edges, prepend=0, append=len(start_ns)))
    at = np.searchsorted(a[:, 0], start_ns, side="right") - 1
    return np.asarray((at >= 0) & (start_ns < a[np.maximum(at, 0), 1]), bool)


def overlap_of_each(start: npt.ArrayLike, end: npt.ArrayLike, b: Intervals) -> Ints:
    """For each given interval the length of its intersection with the set `b`."""
    return _covered(np.asarray(end, np.int64), b) - _covered(np.asarray(start, np.int64), b)


def _covered(points: Ints, b: Intervals) -> Ints:
    """Length of `b` that lies before each point."""
    if not len(b):
        return np.zeros(len(points), np.int64)
    # Up to a point: what lies before the last interval that begins there, and that one up to the point or its end. In
    # front of the first stands one that ends before every point.
    end = np.concatenate(([_BEFORE_ALL], b[:, 1]))
    before = np.concatenate(([-_BEFORE_ALL], np.cumsum(b[:, 1] - b[:, 0]) - b[:, 1]))
    index = _begun(points, b)
    covered = np.minimum(points, end.take(index))
    covered += before.take(index)
    return covered


def _begun(points: Ints, b: Intervals) -> Ints:
    """How many of the intervals begin at each point or before it."""
    if len(points) > len(b) and (points[1:] >= points[:-1]).all():
        # Of points in order of time those that an interval begins before are all from one on.
        edges = np.searchsorted(points, b[:, 0], side="left")
        return np.repeat(np.arange(len(b) + 1), np.diff(edges, prepend=0, append=len(points)))
    return np.searchsorted(b[:, 0], points, side="right")

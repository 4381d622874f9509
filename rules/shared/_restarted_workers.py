"""Workers of a loader that start anew with each epoch, as a trace shows it."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Intervals, Ints, Price

# A fetch is long from so many times the median one on; of two in a window either may be by chance.
_LONG, _FEWEST = 3, 2
# Of the fetching, in these: others had their batches ready.
_MOST = 0.75
# Ending a worker and forking another takes tens of ms: more than what lies before other fetches, and than a callback.
_SILENT_NS, _LONGER = 20_000_000, 3
_UNKNOWN = -1  # before the first fetch of a recording


def restarts(price: Price) -> tuple[float, Intervals]:
    """(fetches from one long one to the next, what is silent before each of these); (0, none) where that is not so.

    Workers that are too slow make long fetches at regular intervals, too; before those Python runs the step as ever.
    """
    events = price.ops.events
    fetches = events.of(Category.ANNOTATION) & events.named("_MultiProcessingDataLoaderIter")
    rows = np.flatnonzero(fetches & (events.thread == price.ops.steps.main_thread))
    none = 0.0, np.empty((0, 2), np.int64)
    took = events.dur_ns[rows]
    long = np.flatnonzero(took > _LONG * np.median(took)) if len(rows) else rows
    apart = np.diff(long)
    if len(long) < _FEWEST or (apart < 2).any() or np.ptp(apart) > 1 or took[long].sum() < _MOST * took.sum():
        return none
    silent = _silent_before(price, rows)
    others = np.delete(silent, long)
    long = long[silent[long] != _UNKNOWN]
    if not len(long) or float(np.median(silent[long])) < max(_SILENT_NS, _LONGER * float(np.median(others))):
        return none
    begins = events.start_ns[rows[long]]
    return float(apart.mean()), np.column_stack((begins - silent[long], begins))


def _silent_before(price: Price, rows: Ints) -> Ints:
    """ns before each fetch since the last op or call on the loop's thread has ended."""
    events = price.ops.events
    mine = events.of(Category.CPU_OP, Category.RUNTIME) & (events.thread == price.ops.steps.main_thread)
    ends = np.sort(events.end_ns[mine])
    at = np.searchsorted(ends, events.start_ns[rows], side="right") - 1
    silent: Ints = np.where(at >= 0, events.start_ns[rows] - ends[np.maximum(at, 0)], _UNKNOWN)
    return silent

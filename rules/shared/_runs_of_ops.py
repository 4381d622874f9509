"""Runs of short ops that PyTorch makes for a purpose of its own, with the Python around them."""

from __future__ import annotations

from collections import Counter

import numpy as np

from advisor.api import Ints, Lines, Price, Saving, Source, edits, total, union

_MOST_NAMED = 3


def spent_in(price: Price, first: Ints, last: Ints, claims: tuple[str, ...], how: str) -> tuple[float, Saving | None]:
    """(µs per recorded step, what the step saves without them); the latter None on a device, where it is no CPU time.

    first, last: places among the outermost ops of the first and last op of each run. Low: the ops and the Python
    between them; high: with as much around them, up to the next ops.
    """
    events, outer = price.ops.events, price.ops.outermost
    starts, ends = events.start_ns[outer[first]], events.end_ns[outer[last]]
    before = events.end_ns[outer[np.maximum(first - 1, 0)]]
    after = events.start_ns[outer[np.minimum(last + 1, len(outer) - 1)]]
    # What Python does beyond a run's own length before or after it is something else.
    early = np.where(first > 0, np.maximum(before, 2 * starts - ends), starts)
    late = np.where(last + 1 < len(outer), np.minimum(after, 2 * ends - starts), ends)
    narrow, wide = union(starts, ends), union(np.minimum(early, starts), np.maximum(late, ends))
    spent_us = price.ops.steps.per_step_us(total(narrow))
    if price.on_device:
        return spent_us, None
    return spent_us, price.divided([edits.remove_time(narrow)], [edits.remove_time(wide)], claims, how)


def lines_of(lines: Lines | None, rows: Ints) -> tuple[Source, ...]:
    """The lines of these ops, those with most of them first."""
    known = Counter(at for row in rows.tolist() if lines and (at := lines.where_op(row)))
    return tuple(at for at, _ in known.most_common(_MOST_NAMED))

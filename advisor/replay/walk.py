"""Nodes of a replay one by one, where each may wait for the one before it."""

from __future__ import annotations

from advisor.trace.events import Floats, Ints

# before, after, other, lag, own, more, more_slot, more_lag: as in `stretches.Rows`, `more` counted from the first node.
Columns = tuple[Ints, Floats, Ints, Floats, Floats, Ints, Ints, Floats]
# Behind the last further edge.
_NO_MORE = (-1, 0, 0.0)


def in_python(done: Floats, at: int, columns: Columns, /) -> None:
    """Writes when each node is done to `done`, from `at` on; what it waits for stands before it."""
    seen = done.data  # an entry of it is read in a third of the time that one of an array takes
    *nodes, more, more_slot, more_lag = (column.tolist() for column in columns)
    further = zip(more, more_slot, more_lag, strict=True)
    node, slot, delay = next(further, _NO_MORE)
    for number, (before, after, other, lag, own) in enumerate(zip(*nodes, strict=True)):
        ready = max(seen[before] + after, seen[other] + lag)
        while node == number:
            ready = max(ready, seen[slot] + delay)
            node, slot, delay = next(further, _NO_MORE)
        seen[at + number] = ready + own


try:
    from advisor.replay._walk import walk as walk  # noqa: PLC0414 - exported again
except ImportError:  # it was not built
    walk = in_python

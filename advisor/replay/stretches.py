"""The pieces that a plan is played in: whole stretches as arrays where that is possible, node by node elsewhere.

Within a stretch no node waits for a node of another queue, so each queue is a chain of its own:
end[i] = max(end[i - 1] + after[i], ready[i]) + own[i]. With c the running sum of after + own, that is
end = c + running maximum of (ready + own - c). A host that runs ahead of its device makes long stretches.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import numpy as np
from msgspec import Struct

from advisor.replay.walk import walk
from advisor.trace.events import Floats, Ints

# Arrays cost some 20 µs per stretch however short it is, which is what this many nodes cost one by one.
SHORTEST = 256


class Piece(Struct, frozen=True):
    """Visited nodes start to end - 1 of a plan.

    chains   of a stretch: (start, end) of the nodes of each queue, which stand together.
    A piece without chains is played node by node.
    """

    start: int
    end: int
    chains: tuple[tuple[int, int], ...] = ()


def pieces(latest: Ints, queue: Ints) -> tuple[Ints, tuple[Piece, ...]]:
    """Cuts visited nodes into pieces, and orders those of each stretch queue by queue: (the order, the pieces).

    latest: for each node the last node that it waits for besides the one before it in its queue; -1 for none.
    """
    bounds = _bounds(latest)
    size = np.diff(bounds)
    long = size >= SHORTEST
    number = np.repeat(np.arange(len(size)), size)
    lane = number * (int(queue.max(initial=0)) + 1) + np.where(long[number], queue, 0)
    order = np.argsort(lane, kind="stable")
    lane = lane[order]
    heads = np.concatenate(([0], np.flatnonzero(lane[1:] != lane[:-1]) + 1))
    place, starts = np.searchsorted(heads, bounds).tolist(), heads.tolist()
    found: list[Piece] = []
    done = 0
    for at in np.flatnonzero(long).tolist():
        start, end = int(bounds[at]), int(bounds[at + 1])
        chains = tuple(pairwise([*starts[place[at] : place[at + 1]], end]))
        found += [Piece(done, start), Piece(start, end, chains)]
        done = end
    found.append(Piece(done, len(latest)))
    return order, tuple(piece for piece in found if piece.end > piece.start)


def _bounds(latest: Ints) -> Ints:
    """Where stretches begin, and the end: a node that waits for one of the stretch before it begins a new one."""
    cuts, start = [0], 0
    waiting = np.flatnonzero(latest >= 0)
    # What a node before the piece waits for lies before it, too: the first to reach into it ends it.
    reach = np.maximum.accumulate(latest[waiting])
    further = np.flatnonzero(np.diff(reach, prepend=-1))
    waiting, reaches = waiting[further], reach[further].tolist()
    at = bisect_left(reaches, start)
    while at < len(reaches):
        start = int(waiting[at])
        cuts.append(start)
        at = bisect_left(reaches, start, at)
    return np.array([*cuts, len(latest)])


class Rows(Struct, frozen=True, eq=False):
    """What holds each visited node back, as numbers: `max(done[before] + after, done[other] + lag) + own`, in ns.

    more, more_slot, more_lag   further edges of the few nodes that have several: node, source and delay, by node
    """

    before: Ints
    after: Floats
    other: Ints
    lag: Floats
    own: Floats
    more: Ints
    more_slot: Ints
    more_lag: Floats


class Stretch:
    """A piece whose queues are chains, with numbers filled in."""

    def __init__(self, piece: Piece, rows: Rows) -> None:
        start, here = piece.start, slice(piece.start, piece.end)
        self._other, self._lag, self._own = rows.other[here], rows.lag[here], rows.own[here]
        takes = rows.after[here] + self._own
        self._chains = [
            (slice(low - start, high - start), takes[low - start : high - start].cumsum(), int(rows.before[low]))
            for low, high in piece.chains
        ]
        low, high = np.searchsorted(rows.more, (start, piece.end)).tolist()
        self._more = rows.more[low:high] - start
        self._more_slot, self._more_lag = rows.more_slot[low:high], rows.more_lag[low:high]

    def play(self, done: Floats, at: int) -> None:
        """Writes when each node of the piece is done, from `at` on; `done` holds everything before it."""
        ends = done.take(self._other)
        ends += self._lag
        if len(self._more):
            np.maximum.at(ends, self._more, done[self._more_slot] + self._more_lag)
        ends += self._own
        for part, total, before in self._chains:
            chain = ends[part]
            chain -= total
            np.maximum(np.maximum.accumulate(chain), done[before], out=chain)
            chain += total
        done[at : at + len(ends)] = ends


class Walk:
    """A piece that is played node by node, with numbers filled in."""

    def __init__(self, piece: Piece, rows: Rows) -> None:
        here = slice(piece.start, piece.end)
        low, high = np.searchsorted(rows.more, (piece.start, piece.end)).tolist()
        self._columns = (
            rows.before[here],
            rows.after[here],
            rows.other[here],
            rows.lag[here],
            rows.own[here],
            rows.more[low:high] - piece.start,
            rows.more_slot[low:high],
            rows.more_lag[low:high],
        )

    def play(self, done: Floats, at: int) -> None:
        """Writes when each node of the piece is done, from `at` on; `done` holds everything before it."""
        walk(done, at, self._columns)

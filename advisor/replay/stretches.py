"""The pieces that a plan is played in: whole stretches as arrays where that is possible, node by node elsewhere.

Within a stretch no node waits for a node of another queue, so each queue is a chain of its own:
end[i] = max(end[i - 1] + after[i], ready[i]) + own[i]. With c the running sum of after + own, that is
end = c + running maximum of (ready + own - c). A host that runs ahead of its device makes long stretches.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice

import numpy as np

from advisor.replay.edges import Floats
from advisor.trace.events import Ints

# Arrays cost some 20 µs per stretch however short it is, which is what this many nodes cost one by one.
SHORTEST = 256


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Visited nodes start to end - 1 of a plan.

    nodes   of a stretch: its nodes queue by queue;  chains: (start, end) of each queue in `nodes`.
    A piece without chains is played node by node.
    """

    start: int
    end: int
    nodes: Ints
    chains: tuple[tuple[int, int], ...]


def pieces(latest: Ints, queue: Ints) -> tuple[Piece, ...]:
    """Cuts visited nodes into pieces.

    latest: for each node the last node that it waits for besides the one before it in its queue; -1 for none.
    """
    cuts, start = [0], 0
    waiting = np.flatnonzero(latest >= 0)
    # What a node before the piece waits for lies before it, too: the first to reach into it ends it.
    reach = np.maximum.accumulate(latest[waiting]).tolist()
    at = bisect_left(reach, start)
    while at < len(reach):
        start = int(waiting[at])
        cuts.append(start)
        at = bisect_left(reach, start, at)
    bounds = np.array([*cuts, len(latest)])
    long = np.diff(bounds) >= SHORTEST
    found: list[Piece] = []
    done = 0
    for start, end in zip(bounds[:-1][long].tolist(), bounds[1:][long].tolist(), strict=True):
        found += [_one_by_one(done, start), _stretch(start, end, queue[start:end])]
        done = end
    found.append(_one_by_one(done, len(latest)))
    return tuple(piece for piece in found if piece.end > piece.start)


def _one_by_one(start: int, end: int) -> Piece:
    return Piece(start, end, np.empty(0, np.int64), ())


def _stretch(start: int, end: int, queue: Ints) -> Piece:
    nodes = np.argsort(queue, kind="stable")
    heads = np.flatnonzero(np.diff(queue[nodes], prepend=-1)).tolist()
    return Piece(start, end, start + nodes, tuple(zip(heads, [*heads[1:], end - start], strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
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
        nodes = piece.nodes
        self._nodes, self._chains = nodes - piece.start, piece.chains
        self._other, self._lag, self._own = rows.other[nodes], rows.lag[nodes], rows.own[nodes]
        takes = rows.after[nodes] + self._own
        self._sums = [np.cumsum(takes[start:end]) for start, end in piece.chains]
        self._before = [int(rows.before[nodes[start]]) for start, _ in piece.chains]
        low, high = np.searchsorted(rows.more, (piece.start, piece.end)).tolist()
        place = np.empty(len(nodes), np.int64)
        place[self._nodes] = np.arange(len(nodes))
        self._more = place[rows.more[low:high] - piece.start]
        self._more_slot, self._more_lag = rows.more_slot[low:high], rows.more_lag[low:high]

    def play(self, done: Floats) -> Floats:
        """When each node of the piece is done; `done` holds everything before it."""
        ready = done[self._other] + self._lag
        np.maximum.at(ready, self._more, done[self._more_slot] + self._more_lag)
        ready += self._own
        ends = np.empty(len(ready))
        for (start, end), total, before in zip(self._chains, self._sums, self._before, strict=True):
            latest = np.maximum.accumulate(ready[start:end] - total)
            ends[self._nodes[start:end]] = total + np.maximum(latest, done[before])
        return ends


class Walk:
    """A piece that is played node by node, with numbers filled in."""

    def __init__(self, piece: Piece, rows: Rows) -> None:
        part = slice(piece.start, piece.end)
        columns = (rows.before, rows.after, rows.other, rows.lag, rows.own)
        self._count, self._columns = piece.end - piece.start, [column[part].tolist() for column in columns]
        low, high = np.searchsorted(rows.more, (piece.start, piece.end)).tolist()
        further = zip(
            (rows.more[low:high] - piece.start).tolist(),
            rows.more_slot[low:high].tolist(),
            rows.more_lag[low:high].tolist(),
            strict=True,
        )
        self._more: list[tuple[int, list[tuple[int, float]]]] = []
        for node, slot, delay in further:
            if not self._more or self._more[-1][0] != node:
                self._more.append((node, []))
            self._more[-1][1].append((slot, delay))

    def play(self, done: list[float]) -> None:
        """Appends when each node of the piece is done to `done`, which holds everything before it."""
        put = done.append
        rows = zip(*self._columns, strict=True)
        seen = 0
        for node, edges in [*self._more, (self._count, [])]:
            for before, after, other, lag, own in islice(rows, node - seen):
                one, two = done[before] + after, done[other] + lag
                put((one if one > two else two) + own)
            seen = node
            if edges:
                before, after, other, lag, own = next(rows)
                ready = max(done[before] + after, done[other] + lag, *(done[slot] + delay for slot, delay in edges))
                put(ready + own)
                seen += 1

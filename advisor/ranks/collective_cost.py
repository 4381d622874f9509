"""What a collective takes on another number of ranks: its fitted latency and bandwidth, by how collectives work."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.analyses.communication.callers import CollectiveRate, fitted
from advisor.ranks.matching import TOGETHER, Meetings
from advisor.ranks.rank_facts import RankFacts
from advisor.trace.events import Floats, Ints

# Kinds of which it is known how messages and volume grow with the ranks.
KNOWN = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "barrier")


def rounds(kind: str, ranks: int) -> tuple[float, float]:
    """Messages one after the other, least and most: in a tree the logarithm of the ranks, in a ring their number.

    An all-reduce goes there and back. Thakur, Rabenseifner and Gropp (2005) derive both.
    """
    both = 2 if kind == "all_reduce" else 1
    return both * math.log2(ranks), both * float(ranks - 1)


def volume(kind: str, ranks: int) -> float:
    """What passes a rank's link, as a multiple of the whole message. A broadcast passes it on as it is."""
    if kind in ("broadcast", "reduce"):
        return float(ranks > 1)
    if kind == "barrier":
        return 0.0
    return (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """Fitted cost of one kind of collective on the ranks of the job.

    kind   a name of KNOWN;  ranks: how many joined;  took_us: all that were measured, µs per step
    rate   latency and time per byte; per_byte_us None or 0 where no two sizes tell them apart
    """

    kind: str
    ranks: int
    took_us: float
    rate: CollectiveRate

    @property
    def told_apart(self) -> bool:
        """Whether latency and bandwidth are known each for itself."""
        return bool(self.rate.per_byte_us)

    def longer_us(self, sizes: Floats, took_us: Floats, ranks: int) -> tuple[Floats, Floats]:
        """By how much longer collectives of these bytes take on so many ranks: low, high; never below no time at all.

        Where latency and bandwidth are not told apart, the range holds both ends: all of it the one, or the other.
        """
        if ranks == 1:
            return -took_us, -took_us
        now, then = rounds(self.kind, self.ranks), rounds(self.kind, ranks)
        growths = [there / here - 1 for there, here in zip(then, now, strict=True)]
        sent = volume(self.kind, self.ranks)
        wider = volume(self.kind, ranks) / sent - 1 if sent else 0.0
        if self.told_apart:
            moved = (self.rate.per_byte_us or 0.0) * sizes * wider
            ends = [moved + latency * growth for latency in self.rate.latency_us for growth in growths]
        else:
            ends = [took_us * growth for growth in (*growths, *([wider] if self.kind != "barrier" else []))]
        stacked = np.stack(ends)
        return np.maximum(stacked.min(axis=0), -took_us), np.maximum(stacked.max(axis=0), -took_us)


def costs(
    reference: RankFacts, ranks: int, meetings: Sequence[Meetings], shift_ns: Ints | None
) -> dict[str, CollectiveCost]:
    """Kind -> its cost, of the kinds that this rank's collectives have.

    Where all ranks' traces are there and on one clock (`shift_ns`), time counts from when the last of them came. Else a
    collective of each size counts as the shortest tenth of its size: those that waited for nobody.
    """
    talks = reference.talks
    took_us = (talks.end_ns - talks.start_ns) / 1e3
    found = {}
    for kind in dict.fromkeys(talks.kind):
        mine = np.array([one == kind for one in talks.kind]) & (talks.bytes >= 0)
        points = _together(meetings, kind, shift_ns) if shift_ns is not None and kind in TOGETHER else []
        points = points or _shortest(talks.bytes[mine], took_us[mine])
        sizes, times = (np.array([point[place] for point in points], float) for place in (0, 1))
        per_step = float(took_us[np.array([one == kind for one in talks.kind])].sum()) / len(reference.labels)
        found[kind] = CollectiveCost(kind, ranks, per_step, fitted(sizes, times))
    return found


def _together(meetings: Sequence[Meetings], kind: str, shift_ns: Ints) -> list[tuple[float, float]]:
    """(bytes, µs from when the last rank came until half of them left) of matched collectives of a kind."""
    points = []
    for one in meetings:
        chosen = np.array([each == kind for each in one.kind]) & (one.bytes.min(axis=1) >= 0)
        came = (one.start_ns - shift_ns[list(one.ranks)])[chosen].max(axis=1)
        left = np.median((one.end_ns - shift_ns[list(one.ranks)])[chosen], axis=1)
        sent_us = np.maximum(left - came, 0) / 1e3
        points += list(zip(one.bytes[chosen].max(axis=1).tolist(), sent_us.tolist(), strict=True))
    return points


def _shortest(sizes: Ints, took_us: Floats) -> list[tuple[float, float]]:
    """(bytes, µs of the shortest tenth) of each size."""
    of_size: dict[int, list[float]] = defaultdict(list)
    for size, us in zip(sizes.tolist(), took_us.tolist(), strict=True):
        of_size[size].append(us)
    return [(float(size), float(np.percentile(found, 10))) for size, found in of_size.items()]

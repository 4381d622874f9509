"""For how long a rank stands still for its collectives, if they took another time: its window played again.

The rank's own work is an axis without the stretches in which it only waits for a collective to end. On it each
collective is launched at a point, and its result is needed at a later one; between the two the rank works on. Played
again, a collective begins when it is launched and a channel is free, and the work stops where it needs what has not
ended.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from advisor.ranks.rank_facts import RankFacts
from advisor.trace.events import Floats, Ints, Mask
from advisor.trace.intervals import overlap_of_each, total

# What no work of the same step reads: it is needed when the last of them is there.
_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
# A kernel that was queued behind another begins within a few µs of its end: when it could have begun is not recorded.
_QUEUED_NS = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Instants:
    """Instants of a rank's collectives, one each, ns: as recorded, and on the axis of its own work."""

    recorded: Ints
    on_axis: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Stalls:
    """The collectives of a rank on the axis of its own work.

    launched  when each is launched;  queued: of kernels that began as another ended, when the first of these did
    early, late   when its result is needed, at the earliest and at the latest: equal for those that were waited for
    took_ns   what each took;  channels: how many run at once
    stalled_ns    measured, all steps together;  steps: how many
    """

    launched: Instants
    queued: Instants
    early: Instants
    late: Instants
    took_ns: Ints
    channels: int
    stalled_ns: int
    steps: int

    @classmethod
    def of(cls, facts: RankFacts) -> Stalls:
        """The collectives of this rank; it has at least one."""
        talks = facts.talks
        # Where the rank only communicates, and that ends as a collective ends: then it waited for that one.
        stalls = facts.exposed[np.isin(facts.exposed[:, 1], talks.end_ns)]

        def instants(times: Ints) -> Instants:
            return Instants(times, times - overlap_of_each(np.zeros(len(times), np.int64), times, stalls))

        # A host's collective that waited for another was launched when it was asked for; a kernel's ask says little,
        # because the host runs ahead of the device.
        waited = _any_between(talks.end_ns, talks.asked_ns, talks.start_ns) & (not facts.on_device)
        known = np.isin(talks.end_ns, stalls[:, 1])
        ends = np.append(facts.starts_ns[1:], max(int(talks.end_ns.max()), int(facts.starts_ns[-1])))
        launched = np.where(waited, talks.asked_ns, talks.start_ns)
        return cls(
            launched=instants(launched),
            queued=instants(_heads(talks.start_ns, talks.end_ns, talks.asked_ns) if facts.on_device else launched),
            early=instants(np.where(known, talks.end_ns, _needed_early(facts))),
            late=instants(np.where(known, talks.end_ns, np.maximum(ends[talks.step], talks.end_ns))),
            took_ns=talks.end_ns - talks.start_ns,
            channels=_at_once(talks.start_ns, talks.end_ns),
            stalled_ns=total(stalls),
            steps=len(facts.labels),
        )

    def played_ns(self, took_ns: Floats, *, late: bool) -> float:
        """For how long the rank stands still if its collectives take so long, all steps together.

        late: their results are needed as late as possible, and they are launched as early.
        """
        launched, needed = (self.queued, self.late) if late else (self.launched, self.early)
        free, ends, stalled = [-np.inf] * self.channels, np.zeros(len(took_ns)), 0.0
        for at, number, is_need in _in_order(launched, needed):
            if is_need:
                stalled = max(stalled, float(ends[number]) - at)
            else:
                ends[number] = max(at + stalled, heapq.heappop(free)) + took_ns[number]
                heapq.heappush(free, float(ends[number]))
        return stalled


def _in_order(launched: Instants, needed: Instants) -> list[tuple[int, int, bool]]:
    """(point of the axis, number of the collective, whether it is needed there), in the order of the rank's work."""
    count = len(launched.on_axis)
    at = np.concatenate((launched.on_axis, needed.on_axis))
    recorded = np.concatenate((launched.recorded, needed.recorded))
    is_need = np.repeat([False, True], count)
    # What is needed at the instant of a launch was waited for before it.
    order = np.lexsort((~is_need, recorded, at))
    return list(zip(at[order].tolist(), (order % count).tolist(), is_need[order].tolist(), strict=True))


def _needed_early(facts: RankFacts) -> Ints:
    """When results are needed at the earliest: as each ends; of reductions when the last of the step ends."""
    talks = facts.talks
    sums = np.array([kind in _REDUCTIONS for kind in talks.kind])
    last = np.zeros(len(facts.labels), np.int64)
    np.maximum.at(last, talks.step[sums], talks.end_ns[sums])
    return np.where(sums, last[talks.step], talks.end_ns)


def _heads(start: Ints, end: Ints, asked: Ints) -> Ints:
    """When the first of each chain of kernels began that followed each other at once; none before it was asked for."""
    gap = start[1:] - end[:-1]
    first = np.concatenate(([True], (gap < 0) | (gap > _QUEUED_NS)))
    heads = start[np.maximum.accumulate(np.where(first, np.arange(len(start)), 0))]
    # Where no op is known, asked is the start.
    return np.where(asked < start, np.maximum(heads, asked), heads)


def _any_between(times: Ints, low: Ints, high: Ints) -> Mask:
    """Whether any of `times` lies in (low, high], for each pair."""
    ordered = np.sort(times)
    found: Mask = np.searchsorted(ordered, high, side="right") > np.searchsorted(ordered, low, side="right")
    return found


def _at_once(start: Ints, end: Ints) -> int:
    """How many of these run at once, at the most."""
    times = np.concatenate((start, end))
    change = np.repeat([1, -1], len(start))
    return int(np.cumsum(change[np.lexsort((change, times))]).max())

"""Who waits for whom: the exposed waiting of each rank, given to the rank that came last or sent late."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.ranks.matching import Meetings
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks
from advisor.trace.events import Floats, Ints
from advisor.trace.intervals import overlap_of_each


class WhoWaits(Struct, frozen=True, eq=False):
    """One entry for each rank of `Ranks`, µs per profiled step, and only while the rank that waits does nothing else.

    waits_us      what it waits in collectives that another rank has not joined yet, and for messages not yet sent
    longest_for   position of the rank that it waits for longest, -1 where it waits for none;  longest_us: so long
    awaited_us    what the rank that waits longest for this one waits for it
    last_share    share of the matched collectives of its groups that it joins last
    """

    waits_us: Floats
    longest_for: Ints
    longest_us: Floats
    awaited_us: Floats
    last_share: Floats


def who_waits(ranks: Ranks) -> WhoWaits | None:
    """Who waits for whom; None where clocks cannot be aligned (`ranks.why`) and no messages were matched."""
    if ranks.waiting is None and not ranks.passes:
        return None
    count = len(ranks.ranks)
    waits_us = np.zeros(count) if ranks.waiting is None else ranks.waiting.us.mean(axis=1)
    for one in ranks.passes:
        waits_us[one.target] += one.waited_us
    longest_for, longest_us, awaited_us = np.full(count, -1, np.int64), np.zeros(count), np.zeros(count)
    for rank, mine in enumerate(_waits(ranks)):
        by_rank = np.zeros(count)
        for awaited, us in mine:
            by_rank += np.bincount(awaited, us, minlength=count)
        awaited_us = np.maximum(awaited_us, by_rank)
        if by_rank.max() > 0:
            longest_for[rank], longest_us[rank] = by_rank.argmax(), by_rank.max()
    return WhoWaits(waits_us, longest_for, longest_us, awaited_us, _last_share(ranks))


def _waits(ranks: Ranks) -> list[list[tuple[Ints, Floats]]]:
    """For each rank whom it waits for, and how many µs per step, by collective or message."""
    steps = len(ranks.steps)
    found: list[list[tuple[Ints, Floats]]] = [[] for _ in ranks.ranks]
    for one in ranks.passes:
        found[one.target].append((np.array([one.source], np.int64), np.array([one.waited_us])))
    for meeting, late_us in _met(ranks):
        last = np.array(meeting.ranks, np.int64)[late_us.argmax(axis=1)]
        for column, rank in enumerate(meeting.ranks):
            found[rank].append((last, _exposed_us(meeting, late_us, ranks.facts[rank], column) / steps))
    return found


def _last_share(ranks: Ranks) -> Floats:
    count = len(ranks.ranks)
    last, joined = np.zeros(count), np.zeros(count)
    for meeting, late_us in _met(ranks):
        members = np.array(meeting.ranks, np.int64)
        joined[members] += len(late_us)
        last += np.bincount(members[late_us.argmax(axis=1)], minlength=count)
    share: Floats = last / np.maximum(joined, 1)
    return share


def _met(ranks: Ranks) -> Iterator[tuple[Meetings, Floats]]:
    """The matched collectives, and how much later each rank came than the first."""
    if ranks.waiting is not None:
        yield from zip(ranks.meetings, ranks.waiting.late_us, strict=True)


def _exposed_us(meeting: Meetings, late_us: Floats, one: RankFacts, column: int) -> Floats:
    """What one rank waits, exposed, in each collective of a group before its last rank joins."""
    start = meeting.start_ns[:, column]
    until = start + ((late_us.max(axis=1) - late_us[:, column]) * 1e3).astype(np.int64)
    until = np.minimum(until, meeting.end_ns[:, column])
    us: Floats = overlap_of_each(start, np.maximum(until, start), one.exposed) / 1e3
    return us

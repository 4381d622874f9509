"""Who waits for whom: the exposed waiting of each rank, given to the rank that came last."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.ranks.ranks import Ranks, Waiting
from advisor.trace.events import Ints
from advisor.trace.intervals import overlap_of_each

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class WhoWaits:
    """One entry for each rank of `Ranks`, µs per profiled step, and only while the rank that waits does nothing else.

    waits_us      what it waits in collectives that another rank has not joined yet
    longest_for   position of the rank that it waits for the longest, -1 where it waits for none;  longest_us: so long
    awaited_us    what another rank waits for this one, mean over the others
    last_share    share of the matched collectives of its groups that it joins last
    """

    waits_us: Floats
    longest_for: Ints
    longest_us: Floats
    awaited_us: Floats
    last_share: Floats


def who_waits(ranks: Ranks) -> WhoWaits | None:
    """Who waits for whom; None where the clocks of the ranks cannot be aligned (`ranks.why`)."""
    if ranks.waiting is None:
        return None
    count, steps = len(ranks.ranks), len(ranks.steps)
    last_rows, rows = np.zeros(count), np.zeros(count)
    waits: list[list[tuple[Ints, Floats]]] = [[] for _ in range(count)]
    for number, meeting in enumerate(ranks.meetings):
        members = np.array(meeting.ranks, np.int64)
        last = members[ranks.waiting.late_us[number].argmax(axis=1)]
        rows[members] += len(last)
        last_rows += np.bincount(last, minlength=count)
        for column, rank in enumerate(meeting.ranks):
            waits[rank].append((last, _exposed_us(ranks, ranks.waiting, number, column)))
    longest_for, longest_us, awaited_us = np.full(count, -1, np.int64), np.zeros(count), np.zeros(count)
    for rank, mine in enumerate(waits):
        if not mine:
            continue
        by_rank = np.bincount(
            np.concatenate([last for last, _ in mine]), np.concatenate([us for _, us in mine]), minlength=count
        )
        awaited_us += by_rank
        top = int(by_rank.argmax())
        if by_rank[top] > 0:
            longest_for[rank], longest_us[rank] = top, by_rank[top] / steps
    return WhoWaits(
        waits_us=ranks.waiting.us.mean(axis=1),
        longest_for=longest_for,
        longest_us=longest_us,
        awaited_us=awaited_us / steps / max(count - 1, 1),
        last_share=last_rows / np.maximum(rows, 1),
    )


def _exposed_us(ranks: Ranks, waiting: Waiting, number: int, column: int) -> Floats:
    """What one rank waits, exposed, in each collective of a group before its last rank joins."""
    meeting, late_us = ranks.meetings[number], waiting.late_us[number]
    start = meeting.start_ns[:, column]
    until = start + ((late_us.max(axis=1) - late_us[:, column]) * 1e3).astype(np.int64)
    until = np.minimum(until, meeting.end_ns[:, column])
    exposed = ranks.facts[meeting.ranks[column]].exposed
    us: Floats = overlap_of_each(start, np.maximum(until, start), exposed) / 1e3
    return us

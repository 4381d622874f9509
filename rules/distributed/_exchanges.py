"""Exchanges of all ranks with all others: how unevenly their numbers are dealt out, and what that costs."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.api import Floats, Ints, Meetings, Ranks

# So much of the waiting is for the rank with the most numbers, or its numbers are not the reason. A wait counts as long
# as three of four are at most: what holds up one rank once makes the others wait longer than all uneven parts.
_TELLS, _USUAL = 0.6, 75


class Uneven(Struct, frozen=True):
    """Exchanges (all-to-all) whose largest part is well above the mean one. Profiled µs per step, of the average rank:
    where each node exchanges by itself, a rank waits in the exchanges of its own node.

    exchanges, of   how many a step are uneven, of all exchanges a step
    times           the largest part over the mean one, mean over the uneven exchanges
    most            position of the rank that has the largest part most often, and whether it is always the same
    sending_us      by which an exchange lasts longer than with even parts, by its largest part
    waiting_us      that a rank waits on average for the one with the most numbers, which computes on them before it
                    joins: in the exchanges at which it is last; 0 where most of the waiting is for others
    """

    exchanges: float
    of: float
    times: float
    most: int
    steady: bool
    sending_us: float
    waiting_us: float

    @property
    def us(self) -> float:
        """What even parts would give back."""
        return self.sending_us + self.waiting_us


def uneven(ranks: Ranks, min_times: float) -> Uneven | None:
    """The uneven exchanges of a job; None without any. Raises Missing where nobody knows who waited."""
    waiting = ranks.known_waiting()
    times: list[Floats] = []
    most: list[int] = []
    lost: list[Floats] = []
    of = exchanges = 0.0
    for meeting, late in zip(ranks.meetings, waiting.late_us, strict=True):
        rows = _exchanges(meeting)
        part_of_job = len(meeting.ranks) / len(ranks.ranks)
        of += part_of_job * len(rows)
        part, factor = _parts(meeting.sent[rows], meeting.received[rows])
        odd = factor >= min_times
        if not odd.any():
            continue
        times.append(factor[odd])
        most += [meeting.ranks[column] for column in part[odd].argmax(axis=1).tolist()]
        exchanges += part_of_job * int(odd.sum())
        sent_us, waited_us, is_last = _lost_us(meeting, rows[odd], late, part[odd], factor[odd]).T
        lost.append(np.column_stack((part_of_job * sent_us, part_of_job * waited_us, is_last)))
    if not times:
        return None
    sending_us, waiting_us, last = np.concatenate(lost).T
    for_the_most_us = float((waiting_us * last).sum())
    usual_us = np.minimum(waiting_us, np.percentile(waiting_us, _USUAL))
    tells = float((usual_us * last).sum()) >= _TELLS * float(usual_us.sum())
    steps = max(len(ranks.steps), 1)
    usual = int(np.bincount(most).argmax())
    return Uneven(
        exchanges=exchanges / steps,
        of=of / steps,
        times=float(np.concatenate(times).mean()),
        most=usual,
        steady=most.count(usual) == len(most),
        sending_us=float(sending_us.sum()) / steps,
        waiting_us=for_the_most_us / steps if tells else 0.0,
    )


def _exchanges(meeting: Meetings) -> Ints:
    """Rows of exchanges whose parts are known on all ranks."""
    known = (np.minimum(meeting.sent, meeting.received) >= 0).all(axis=1)
    some = np.maximum(meeting.sent, meeting.received).max(axis=1) > 0
    return np.flatnonzero(known & some & np.array([kind == "all_to_all" for kind in meeting.kind], np.bool_))


def _parts(sent: Ints, received: Ints) -> tuple[Floats, Floats]:
    """(each rank's numbers in the direction that is less even, the largest over the mean) of each exchange."""
    both = np.stack((sent, received)).astype(np.float64)
    factor = both.max(axis=2) / np.maximum(both.mean(axis=2), 1.0)
    way = factor.argmax(axis=0)
    at = np.arange(len(way))
    return both[way, at], factor[way, at]


def _lost_us(meeting: Meetings, rows: Ints, late: Floats, part: Floats, factor: Floats) -> Floats:
    """For each exchange: (µs that it sends for its largest part, µs that ranks wait on average, its rank is last)."""
    spent = (meeting.end_ns[rows] - meeting.start_ns[rows]) / 1e3
    waited = np.minimum(late[rows].max(axis=1, keepdims=True) - late[rows], spent)
    sent = np.maximum(spent - waited, 0.0).min(axis=1)
    last = part.argmax(axis=1) == late[rows].argmax(axis=1)
    return np.column_stack((sent * (1 - 1 / factor), waited.mean(axis=1), last.astype(np.float64)))

"""Which send of one rank is which receive of another, and who kept whom waiting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from advisor.ranks.rank_facts import RankFacts
from advisor.trace.events import Ints
from advisor.trace.intervals import intersect, total, union

# Clocks of one host agree; what its kernel rounds is less than this.
_SLACK_NS = 50_000
# Windows of two ranks begin at different micro-batches; they are laid over each other where so much of both overlaps.
_OVERLAP = 0.5
_FEWEST_STEPS = 2


class Passes(Struct, frozen=True, eq=False):
    """Messages from one rank to another, in order: an entry for each send matched with its receive.

    source, target   positions of the ranks
    sent_ns, ended_ns   when the send was called, and when the receive ended
    waited_us    time in which the target only waits before the source sends, µs per step: the source is late
    travels_us   time in which it only waits from then on: the transfer
    """

    source: int
    target: int
    sent_ns: Ints
    ended_ns: Ints
    waited_us: float
    travels_us: float


def passes(facts: Sequence[RankFacts], numbers: Sequence[int]) -> tuple[tuple[Passes, ...], int]:
    """All messages that can be matched, by (source, target); and how many pairs of ranks have some that cannot be."""
    places = {number: place for place, number in enumerate(numbers)}
    pairs = {
        (place, places[peer])
        for place, one in enumerate(facts)
        for peer, kind in zip(one.talks.peer.tolist(), one.talks.kind, strict=True)
        if kind == "send" and peer in places
    }
    found, failed = [], 0
    for source, target in sorted(pairs):
        sends = _rows(facts[source], "send", numbers[target])
        takes = _rows(facts[target], "recv", numbers[source])
        matched = _matched(facts[source], sends, facts[target], takes)
        if matched is None:
            failed += 1
        else:
            found.append(_of(facts, source, target, *matched))
    return tuple(found), failed


def _rows(one: RankFacts, kind: str, peer: int) -> Ints:
    mine = np.array([name == kind for name in one.talks.kind], bool)
    return np.flatnonzero(mine & (one.talks.peer == peer))


def _matched(source: RankFacts, sends: Ints, target: RankFacts, takes: Ints) -> tuple[Ints, Ints] | None:
    """Sends and receives, row for row: the earliest receives of which none ends before its message was sent.

    Messages between two ranks keep their order, so all that is unknown is which receive of the window belongs to its
    first send: steps that are told by their backward pass begin at different micro-batches on different ranks. What
    empties at the end of each step has one answer, as soon as the window holds such an end. None where there is none.
    """
    sent, size = source.talks.asked_ns[sends], source.talks.sent[sends]
    ended, taken = target.talks.end_ns[takes], target.talks.received[takes]
    least = _OVERLAP * min(len(sends), len(takes))
    if min(len(source.labels), len(target.labels)) < _FEWEST_STEPS:
        return None
    for shift in range(-len(sends) + 1, len(takes)):
        first, begin = max(0, -shift), max(0, shift)
        many = min(len(sends) - first, len(takes) - begin)
        mine, theirs = slice(first, first + many), slice(begin, begin + many)
        if (
            many >= max(least, 1)
            and (ended[theirs] + _SLACK_NS >= sent[mine]).all()
            and (size[mine] == taken[theirs]).all()
        ):
            return sends[mine], takes[theirs]
    return None


def _of(facts: Sequence[RankFacts], source: int, target: int, sends: Ints, takes: Ints) -> Passes:
    sent = facts[source].talks.asked_ns[sends]
    taken, ended = facts[target].talks.start_ns[takes], facts[target].talks.end_ns[takes]
    late = np.clip(sent, taken, ended)
    return Passes(
        source, target, sent, ended, _exposed_us(facts[target], taken, late), _exposed_us(facts[target], late, ended)
    )


def _exposed_us(one: RankFacts, start_ns: Ints, end_ns: Ints) -> float:
    return total(intersect(union(start_ns, end_ns), one.exposed)) / 1e3 / max(len(one.labels), 1)

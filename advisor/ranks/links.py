"""Links that are slower than their like: how long equal sets of ranks send equal messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.arrays import Floats
from advisor.ranks.matching import TOGETHER, Meetings
from advisor.ranks.ranks import Ranks, Waiting

# Of two sets it cannot be told which is the usual one.
_FEWEST = 3
# How many collectives of each kind and size a set of ranks has in all steps.
_Messages = frozenset[tuple[tuple[str, int], int]]


class Sender(Struct, frozen=True):
    """A set of ranks that send to each other. ranks: their positions; sent_us: so long, per profiled step."""

    ranks: tuple[int, ...]
    sent_us: float
    collectives: float


def alike(ranks: Ranks, node: Sequence[int] | None) -> Iterator[tuple[bool | None, list[Sender]]]:
    """Sets of equally many ranks with equal collectives, and whether each is on one node; None where nodes are unknown.

    Sending begins when the last rank has joined, so that no set is blamed for a late rank. node: of each rank.
    """
    if ranks.waiting is None:
        return
    found: dict[tuple[bool | None, int, _Messages], list[Sender]] = defaultdict(list)
    for members, several in _by_members(ranks.meetings, ranks.waiting).items():
        sent_us, messages = 0.0, Counter[tuple[str, int]]()
        for meeting, late in several:
            sending = _sent_us(meeting, late)
            for row, kind in enumerate(meeting.kind):
                if kind in TOGETHER:
                    sent_us += float(sending[row])
                    messages[kind, int(meeting.bytes[row].max())] += 1
        within = None if node is None else len({node[rank] for rank in members}) == 1
        steps = len(ranks.steps)
        sender = Sender(members, sent_us / steps, messages.total() / steps)
        found[within, len(members), frozenset(messages.items())].append(sender)
    for (within, _, sent), senders in found.items():
        if len(senders) >= _FEWEST and sent:
            yield within, senders


def _by_members(meetings: Sequence[Meetings], waiting: Waiting) -> dict[tuple[int, ...], list[tuple[Meetings, Floats]]]:
    found: dict[tuple[int, ...], list[tuple[Meetings, Floats]]] = defaultdict(list)
    for one, late in zip(meetings, waiting.late_us, strict=True):
        found[one.ranks].append((one, late))
    return dict(found)


def _sent_us(meeting: Meetings, late: Floats) -> Floats:
    """µs of each collective from when its last rank came until the first has left."""
    spent = (meeting.end_ns - meeting.start_ns) / 1e3
    waited = late.max(axis=1, keepdims=True) - late
    sent: Floats = np.maximum(spent - waited, 0.0).min(axis=1)
    return sent

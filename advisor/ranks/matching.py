"""Which collectives of different ranks are the same one, and how far the ranks' clocks are apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from advisor.ranks.rank_facts import RankFacts
from advisor.trace.events import Ints

# Kinds that no rank leaves before the last one has come: only those align clocks.
TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
# One rank sends: it may leave before the others come, and they leave no earlier than it has come.
_FROM_ONE = ("broadcast",)
# With fewer meetings the differences of clocks cannot be told from the unevenness of their ends.
_FEWEST = 4


class Meetings(Struct, frozen=True, eq=False):
    """Matched collectives of the same ranks; a row for each of them, a column for each rank.

    ranks    positions of the ranks in the job, in order
    kind     of each meeting;  step: its step, an index into the job's common labels
    place    0 for the first meeting of its step (over all groups of the same ranks), and so on
    start_ns, end_ns   when each rank joined and left, by its own clock
    sent, received     elements, -1 if unknown;  bytes: of each rank's larger message, -1 if unknown
    """

    ranks: tuple[int, ...]
    group: str
    kind: tuple[str, ...]
    step: Ints
    place: Ints
    start_ns: Ints
    end_ns: Ints
    sent: Ints
    received: Ints
    bytes: Ints


def meetings(facts: Sequence[RankFacts], labels: tuple[str, ...]) -> tuple[tuple[Meetings, ...], int]:
    """All collectives that can be matched, by process group; and how many of the steps' groups could not be."""
    found, failed = [], 0
    for group, ranks in _groups(facts).items():
        rows, missed = _matched(facts, ranks, group, labels)
        failed += missed
        if rows:
            found.append(_columns(facts, ranks, group, rows))
    return tuple(found), failed


def _groups(facts: Sequence[RankFacts]) -> dict[str, tuple[int, ...]]:
    """Process group -> positions of the ranks that are in it; without groups whose other members are not here."""
    members: dict[str, set[int]] = defaultdict(set)
    size: dict[str, int] = {}
    for position, one in enumerate(facts):
        for group, stated in set(zip(one.talks.group, one.talks.members.tolist(), strict=True)):
            members[group].add(position)
            size[group] = max(size.get(group, -1), stated)
    world = max((one.world_size or 0 for one in facts), default=0)
    whole = {group: size[group] if size[group] > 0 else world for group in members}
    return {
        group: tuple(sorted(ranks))
        for group, ranks in sorted(members.items())
        if len(ranks) > 1 and len(ranks) >= whole[group]
    }


Row = tuple[int, str, list[int]]  # step, kind, the row of each rank
Key = Callable[[RankFacts, int], object]


def _matched(
    facts: Sequence[RankFacts], ranks: tuple[int, ...], group: str, labels: tuple[str, ...]
) -> tuple[list[Row], int]:
    """The k-th of a kind (and size, where all agree on sizes) of each step, on every rank; and steps that differ."""
    rows: list[Row] = []
    failed = 0
    by_rank = [_by_step(facts[rank], group, labels) for rank in ranks]
    for step in range(len(labels)):
        each = [steps.get(step, []) for steps in by_rank]
        key = _key(facts, ranks, each)
        if key is None:
            each = [_of_kinds(facts[rank], mine, TOGETHER) for rank, mine in zip(ranks, each, strict=True)]
            key = _key(facts, ranks, each)
        if key is None:
            failed += 1
            continue
        queues: list[dict[object, list[int]]] = []
        for rank, mine in zip(ranks, each, strict=True):
            queue: dict[object, list[int]] = defaultdict(list)
            for row in mine:
                queue[key(facts[rank], row)].append(row)
            queues.append(queue)
        for name, first in queues[0].items():
            kind = facts[ranks[0]].talks.kind[first[0]]
            rows += [(step, kind, [queue[name][k] for queue in queues]) for k in range(len(first))]
    return rows, failed


def _by_step(one: RankFacts, group: str, labels: tuple[str, ...]) -> dict[int, list[int]]:
    """Common step -> rows of this rank's collectives in it, by start."""
    common = {label: step for step, label in enumerate(labels)}
    found: dict[int, list[int]] = defaultdict(list)
    for row, (name, kind, step) in enumerate(
        zip(one.talks.group, one.talks.kind, one.talks.step.tolist(), strict=True)
    ):
        at = common.get(one.labels[step])
        if name == group and kind in (*TOGETHER, *_FROM_ONE) and at is not None:
            found[at].append(row)
    return found


def _of_kinds(one: RankFacts, rows: list[int], kinds: tuple[str, ...]) -> list[int]:
    return [row for row in rows if one.talks.kind[row] in kinds]


def _by_sequence(one: RankFacts, row: int) -> object:
    return (one.talks.kind[row], int(one.talks.sequence[row]))


def _by_size(one: RankFacts, row: int) -> object:
    return (one.talks.kind[row], int(one.talks.sent[row]))


def _by_kind(one: RankFacts, row: int) -> object:
    return one.talks.kind[row]


def _key(facts: Sequence[RankFacts], ranks: tuple[int, ...], each: list[list[int]]) -> Key | None:
    """What collectives of one step are told apart by, so that every rank has the same of them; None where none does."""
    numbered_all = all(
        (facts[rank].talks.sequence[mine] >= 0).all() for rank, mine in zip(ranks, each, strict=True) if mine
    )
    for key in (_by_sequence, _by_size, _by_kind) if numbered_all else (_by_size, _by_kind):
        numbered = [Counter(key(facts[rank], row) for row in mine) for rank, mine in zip(ranks, each, strict=True)]
        if all(one == numbered[0] for one in numbered):
            return key
    return None


def _columns(facts: Sequence[RankFacts], ranks: tuple[int, ...], group: str, rows: list[Row]) -> Meetings:
    places = np.array([row for _, _, row in rows], np.int64).reshape(-1, len(ranks))

    def column(name: str) -> Ints:
        each = [getattr(facts[rank].talks, name)[places[:, at]] for at, rank in enumerate(ranks)]
        return np.stack(each, axis=1)

    start = column("start_ns")
    step = np.array([step for step, _, _ in rows], np.int64)
    order = np.lexsort((start[:, 0], step))
    first = np.searchsorted(step[order], step[order], side="left")
    return Meetings(
        ranks=ranks,
        group=group,
        kind=tuple(rows[index][1] for index in order.tolist()),
        step=step[order],
        place=np.arange(len(rows)) - first,
        start_ns=start[order],
        end_ns=column("end_ns")[order],
        sent=column("sent")[order],
        received=column("received")[order],
        bytes=column("bytes")[order],
    )


def offsets(found: Sequence[Meetings], ranks: int) -> tuple[Ints, int] | None:
    """(how much later each rank's clock shows the same instant than the first rank's, uncertainty), ns.

    The end of a meeting is the same instant on all its ranks, but for those whose thread was kept from a core. So the
    difference of two clocks is where half of the differences of ends lie closest together; half the width of that
    stretch is the uncertainty. None where some rank meets no other often enough.
    """
    known: dict[int, tuple[int, int]] = {0: (0, 0)}
    reached = True
    while reached and len(known) < ranks:
        reached = False
        for one in sorted(found, key=lambda one: (-len(one.ranks), one.group)):
            met = _met(one, known)
            known |= met
            reached = reached or bool(met)
    if len(known) < ranks:
        return None
    return np.array([known[rank][0] for rank in range(ranks)], np.int64), max(width for _, width in known.values())


def as_recorded(found: Sequence[Meetings], ranks: int) -> tuple[Ints, int] | None:
    """No offsets, where few meetings show that the ranks' clocks agree, as those of processes on one machine do.

    The uncertainty is the most by which their ends differ. None where no rank came after another by twice that: then it
    cannot be told who was last; and where some rank meets no other.
    """
    rows = [(one, np.isin(one.kind, TOGETHER)) for one in found]
    known = [(one, mine) for one, mine in rows if mine.any()]
    if {rank for one, _ in known for rank in one.ranks} != set(range(ranks)):
        return None
    uncertain = max(int(np.ptp(one.end_ns[mine], axis=1).max()) for one, mine in known)
    later = max(int(np.ptp(one.start_ns[mine], axis=1).max()) for one, mine in known)
    return (np.zeros(ranks, np.int64), uncertain) if 2 * uncertain < later else None


def _met(one: Meetings, known: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Clocks of further ranks, by those of a rank that is known and often meets them: (offset, uncertainty), ns."""
    column, anchor = next(((column, rank) for column, rank in enumerate(one.ranks) if rank in known), (-1, -1))
    left = one.end_ns[np.isin(one.kind, TOGETHER)]
    if column < 0 or len(left) < _FEWEST:
        return {}
    met: dict[int, tuple[int, int]] = {}
    for other, rank in enumerate(one.ranks):
        if rank not in known:
            middle, width = _closest_half(left[:, other] - left[:, column])
            met[rank] = (known[anchor][0] + middle, max(known[anchor][1], width))
    return met


def _closest_half(values: Ints) -> tuple[int, int]:
    """Middle and half width of the shortest stretch that holds half of the values."""
    ordered = np.sort(values)
    many = len(ordered) // 2 + 1
    widths = ordered[many - 1 :] - ordered[: len(ordered) - many + 1]
    at = int(np.argmin(widths))
    held = ordered[at : at + many]
    return int(np.median(held)), int(widths[at]) // 2

"""The ranks of a job side by side, as a report shows them: parts of the step, waiting, nodes, places in the mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace

from advisor.arrays import Floats
from advisor.model import ComparedRank, ComparedRanks, RankGroup, RankLinks, SlowLinks
from advisor.ranks import links
from advisor.ranks.deduct_waiting import WAITING
from advisor.ranks.nodes import nodes
from advisor.ranks.ranks import Ranks
from advisor.ranks.who_waits import WhoWaits, who_waits

NODE = "node"


def compared(
    ranks: Ranks | None,
    files: Mapping[int, str],
    *,
    least_share: float = 0.05,  # ranks of equal work differ by less than 5 % of the step (rule straggling-rank)
) -> ComparedRanks | None:
    """The view of a job; None for one rank, or where the ranks have no step in common. files: by number of the rank."""
    if ranks is None or not ranks.steps:
        return None
    parts = {part: us.mean(axis=1) for part, us in ranks.parts_us.items() if part not in WAITING}
    own = np.sum(list(parts.values()), axis=0) if parts else np.zeros(len(ranks.ranks))
    waits = who_waits(ranks)
    at = nodes(ranks.ranks, ranks.facts, [files[rank] for rank in ranks.ranks])
    above = {part: us - np.median(us) for part, us in parts.items()}
    rows = tuple(_row(ranks, place, above, own, waits, at) for place in range(len(ranks.ranks)))
    return ComparedRanks(
        step_us=ranks.step_us,
        steps=len(ranks.steps),
        ranks=rows,
        groups=tuple(_groups(rows, parts, own, least_share * ranks.step_us)),
        uncertain_us=ranks.waiting.uncertain_us if ranks.waiting else None,
        why=ranks.why if waits is None else "",
        links=tuple(_links(ranks, at, least_share * ranks.step_us)),
    )


def _links(
    ranks: Ranks,
    at: tuple[int, ...] | None,
    least_us: float,
    *,
    least_more: float = 0.5,  # of the others' median: sets that share a network differ by less
) -> Iterator[RankLinks]:
    """Sets of ranks that send equal messages: those within nodes first, then those between nodes."""
    uncertain_us = ranks.waiting.uncertain_us if ranks.waiting else 0.0
    found = sorted(links.alike(ranks, at), key=lambda one: (one[0] is False, len(one[1][0].ranks), one[1][0].ranks))
    for within, senders in found:
        sent = np.array([one.sent_us for one in senders])
        # What its own collectives may seem longer by, where clocks are apart.
        blurred_us = uncertain_us * senders[0].collectives
        slow = []
        for place, one in enumerate(senders):
            usual = float(np.median(np.delete(sent, place)))
            if one.sent_us - usual >= max(least_us, least_more * usual, blurred_us):
                numbers = tuple(ranks.ranks[position] for position in one.ranks)
                on = tuple(sorted({at[position] for position in one.ranks})) if at else ()
                slow.append(SlowLinks(numbers, on, one.sent_us, one.sent_us - usual))
        yield RankLinks(
            within=within,
            ranks=len(senders[0].ranks),
            sets=len(senders),
            collectives=senders[0].collectives,
            sent_us=float(np.median(sent)),
            least_us=float(sent.min()),
            most_us=float(sent.max()),
            slow=tuple(sorted(slow, key=lambda one: (-one.more_us, one.ranks))),
        )


def _row(
    ranks: Ranks,
    place: int,
    above: Mapping[str, Floats],
    own: Floats,
    waits: WhoWaits | None,
    at: tuple[int, ...] | None,
) -> ComparedRank:
    more = max(above, key=lambda part: float(above[part][place]), default="")
    more_us = max(float(above[more][place]), 0.0) if more else 0.0
    row = ComparedRank(
        rank=ranks.ranks[place],
        own_us=float(own[place]),
        node=at[place] if at else None,
        mesh={one.kind: one.index for one in ranks.facts[place].mesh},
        more=more if more_us > 0 else "",
        more_us=more_us,
    )
    if waits is None:
        return row
    awaited = int(waits.longest_for[place])
    return replace(
        row,
        waits_us=float(waits.waits_us[place]),
        waits_for=ranks.ranks[awaited] if awaited >= 0 else None,
        waits_for_us=float(waits.longest_us[place]),
        awaited_us=float(waits.awaited_us[place]),
        last_share=float(waits.last_share[place]),
    )


def _groups(
    rows: tuple[ComparedRank, ...], parts: Mapping[str, Floats], own: Floats, least_us: float
) -> Iterator[RankGroup]:
    """The groups of each kind that all ranks have a place in, where there are several of more than one rank in all."""
    kinds = dict.fromkeys(kind for row in rows for kind in row.mesh)
    places: dict[str, list[int | None]] = {NODE: [row.node for row in rows]}
    places |= {kind: [row.mesh.get(kind) for row in rows] for kind in sorted(kinds)}
    for kind, found in places.items():
        members: dict[int, list[int]] = {}
        for position, index in enumerate(found):
            if index is not None:
                members.setdefault(index, []).append(position)
        # Groups of one rank each are the ranks themselves, which have rows of their own.
        if None not in found and 1 < len(members) < len(rows):
            yield from _of_kind(kind, dict(sorted(members.items())), rows, parts, own, least_us)


def _of_kind(
    kind: str,
    members: Mapping[int, list[int]],
    rows: tuple[ComparedRank, ...],
    parts: Mapping[str, Floats],
    own: Floats,
    least_us: float,
) -> Iterator[RankGroup]:
    more_own = _more(own, members)
    more_in = {part: _more(us, members) for part, us in parts.items()}
    for at, (index, mine) in enumerate(members.items()):
        largest = max(more_in, key=lambda part, at=at: float(more_in[part][at]), default="")  # type: ignore[misc]
        more_us = float(more_own[at])
        rest = np.median(np.delete(own, mine))
        waits = [us for us in (rows[position].waits_us for position in mine) if us is not None]
        yield RankGroup(
            kind=kind,
            index=index,
            ranks=tuple(rows[position].rank for position in mine),
            own_us=float(np.median(own[mine])),
            more_us=more_us,
            waits_us=float(np.median(waits)) if waits else None,
            more=largest if more_us > 0 and largest and more_in[largest][at] > 0 else "",
            # Half as far each: one late rank among them makes no slow place.
            stands_out=more_us >= least_us and bool((2 * (own[mine] - rest) >= more_us).all()),
        )


def _more(us: Floats, members: Mapping[int, list[int]]) -> Floats:
    """How far the median of each group is above the median of the other groups' medians."""
    middle = np.array([np.median(us[mine]) for mine in members.values()])
    return np.array([middle[at] - np.median(np.delete(middle, at)) for at in range(len(middle))])

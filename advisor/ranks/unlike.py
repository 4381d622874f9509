"""Ranks that cannot be of one job: what they sum over all ranks differs in every step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import Ranks

# A sum over all ranks has as many elements on each of them; what they gather or scatter need not.
_EQUAL = "all_reduce"
# So many ranks of a set are named.
_SHOWN = 8
# Step -> how many sums of each size a rank has in it.
_Sums = dict[str, Counter[int]]


def unlike(ranks: Ranks) -> tuple[tuple[int, ...], ...]:
    """Numbers of the ranks whose sums over the whole job agree, the most ranks first; () where those of all agree.

    Two ranks agree where they have equally many sums of each size in any common step. Nothing is told (()) where a rank
    of the job is missing, or has no such sum of a known size.
    """
    each = [_sums(one, frozenset(ranks.steps), len(ranks.ranks)) for one in ranks.facts]
    if not ranks.whole or not all(each):
        return ()
    kinds: list[tuple[_Sums, list[int]]] = []
    for number, sums in zip(ranks.ranks, each, strict=True):
        mine = next((numbers for first, numbers in kinds if any(first.get(step) == sums[step] for step in sums)), None)
        if mine is None:
            kinds.append((sums, [number]))
        else:
            mine.append(number)
    if len(kinds) < 2:
        return ()
    return tuple(sorted((tuple(numbers) for _, numbers in kinds), key=lambda numbers: (-len(numbers), numbers)))


def without_waiting(ranks: Ranks) -> tuple[Ranks, str]:
    """The ranks, and a sentence about those that cannot be of one job: then who waited for whom is not known."""
    kinds = unlike(ranks)
    if not kinds:
        return ranks, ""
    said = (
        " and ".join(map(_named, kinds))
        if len(kinds) == 2
        else f"{len(kinds)} sets of ranks, the largest {_named(kinds[0])},"
    )
    text = f"{said} sum different sizes over all ranks in every step, so they are hardly of one job"
    return replace(ranks, waiting=None, passes=(), why=f"{text}; pass the traces of one job"), text


def _named(numbers: Sequence[int]) -> str:
    some = ", ".join(map(str, numbers[:_SHOWN])) + (" …" if len(numbers) > _SHOWN else "")
    return f"rank{'s' * (len(numbers) > 1)} {some}"


def _sums(one: RankFacts, steps: frozenset[str], ranks: int) -> _Sums:
    talks = one.talks
    found: _Sums = defaultdict(Counter)
    columns = zip(talks.step.tolist(), talks.kind, talks.sent.tolist(), talks.members.tolist(), strict=True)
    for step, kind, sent, members in columns:
        if kind == _EQUAL and sent >= 0 and members == ranks and one.labels[step] in steps:
            found[one.labels[step]][sent] += 1
    return dict(found)

"""What of an observed step was computed before: pairs of equal values, from what `value_numbering` told apart.

Pure, like `value_numbering`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.dataflow.observed.aligned import places
from advisor.analyses.dataflow.observed.value_numbering import Seen

_Place = TypeVar("_Place", bound=Hashable)


class Found(Struct, frozen=True):
    """What the last of several steps had before. ops: names in order.

    again     (op, the earlier one that made its value); a negative one is of the step before, counted from its end
    constant  ops whose result never changes
    casts     (op, which of the casts that autocast made for it, the earlier op, which of that one's)
    """

    ops: list[str]
    again: list[tuple[int, int]]
    constant: list[int]
    casts: list[tuple[int, int, int, int]]


def judge(steps: Sequence[Sequence[Seen]]) -> Found:
    """What of the last step was made before in it, in each of the steps alike; what depends on nothing that changes."""
    *others, last = steps
    names = [one.name for one in last]
    pairs = [_pairs(step) for step in others]
    at_others = [places([one.name for one in step], names) for step in others]
    again = [
        (at, first)
        for at, first in _pairs(last).items()
        if all(
            at in there and first in there and found.get(there[at]) == there[first]
            for there, found in zip(at_others, pairs, strict=True)
        )
    ]
    before = others[-1] if others else ()
    constant = [at for at, one in enumerate(last) if one.constant]
    return Found(names, sorted(again + _of_the_step_before(before, last)), constant, _casts(steps, at_others))


def with_closures(found: Found, steps: Sequence[Sequence[Seen]]) -> Found:
    """What was found, and what a closure computes that the loop computes outside of it, or the other way round.

    steps: as if no number of the script were another one elsewhere: one function with its numbers is called twice.
    """
    known = {at for at, _ in found.again}
    before = (*steps[-2], *steps[-1])
    both = [
        (at, first)
        for at, first in judge(steps).again
        if at not in known and bool(steps[-1][at].closure) != bool(before[first + len(steps[-2])].closure)
    ]
    return replace(found, again=sorted(found.again + both))


def _pairs(step: Sequence[Seen]) -> dict[int, int]:
    """op -> the first op of this step that made the same value; an optimizer may ask for its closure's twice."""
    found = _repeats((at, one.value) for at, one in enumerate(step))
    calls = {at: {step[at].closure, step[first].closure} for at, first in found.items()}
    return {at: first for at, first in found.items() if 0 in calls[at] or len(calls[at]) == 1}


def _repeats(values: Iterable[tuple[_Place, int | None]]) -> dict[_Place, _Place]:
    """Place of a value that was there before -> its first place."""
    first: dict[int, _Place] = {}
    found = {}
    for at, value in values:
        if value is not None and first.setdefault(value, at) != at:
            found[at] = first[value]
    return found


def _of_the_step_before(before: Sequence[Seen], last: Sequence[Seen]) -> list[tuple[int, int]]:
    """Ops that computed what the step before had: a step may begin between a pass and its repetition.

    Only where both ran the same ops, so that each has the other's; what never changes is constant, and no pair.
    """
    if [one.name for one in before] != [one.name for one in last]:
        return []
    theirs: dict[int, int] = {}
    for at, one in enumerate(before):
        if one.value is not None and not one.constant:
            theirs.setdefault(one.value, at)
    found = []
    mine: set[int] = set()
    for at, one in enumerate(last):
        if one.value is None or one.value in mine:
            continue
        mine.add(one.value)
        first = theirs.get(one.value)
        if first is not None and not (one.closure and before[first].closure):
            found.append((at, first - len(before)))
    return found


def _casts(steps: Sequence[Sequence[Seen]], at_others: Sequence[dict[int, int]]) -> list[tuple[int, int, int, int]]:
    """Of the last step the casts of autocast that made again what an earlier one had made, in each of the steps alike.

    Those of an op that is computed again itself go with it.
    """
    *others, found = [_repeats(_cast_values(step)) for step in steps]
    again = _pairs(steps[-1])
    kept = []
    for (at, number), (first, ordinal) in found.items():
        alike = all(
            at in there and first in there and theirs.get((there[at], number)) == (there[first], ordinal)
            for there, theirs in zip(at_others, others, strict=True)
        )
        if alike and at not in again:
            kept.append((at, number, first, ordinal))
    return kept


def _cast_values(step: Sequence[Seen]) -> Iterable[tuple[tuple[int, int], int | None]]:
    for at, one in enumerate(step):
        for number, value in enumerate(one.casts):
            yield (at, number), value

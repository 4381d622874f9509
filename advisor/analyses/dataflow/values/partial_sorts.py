"""Of which sorts of a step only the first elements, or the last ones, are read.

Pure, like `value_numbering`. What Python reads without an op is seen as a view that no op reads,
and counts as read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from msgspec import Struct

from advisor.analyses.dataflow.observed.aligned import in_each
from advisor.analyses.dataflow.observed.value_numbering import Op, Ref
from advisor.analyses.dataflow.values import unread_rows

_SORTS = ("aten::sort", "aten::argsort")


class Sorted(Struct, frozen=True):
    """op: a sort; read: how many of the elements from one end on are read; of: how many it sorts at a time."""

    op: int
    read: int
    of: int


def partly_read(ops: Sequence[Op], stored: unread_rows.Storages | None = None) -> list[Sorted]:
    """Sorts of one step, by their place in it, of which not all is read. Those that nothing reads are left out.

    stored: `unread_rows.storages` of these ops, if known.
    """
    made, place = stored or unread_rows.storages(ops)
    read: dict[int, int] = {}
    for one in made:
        op = ops[one.at]
        if op.name not in _SORTS or op.place != "loop":
            continue
        seen = [ref for _, ref in one.reads] + list(one.views.values())
        if seen:
            most = _length(op) if one.changed else _reach(op, one.ref, seen)
            read[one.at] = max(read.get(one.at, 0), most)
    return [Sorted(place[at], most, length) for at, most in sorted(read.items()) if most < (length := _length(ops[at]))]


def judge(steps: Sequence[Sequence[Sorted]], names: Sequence[Sequence[str]]) -> list[Sorted]:
    """Of the last of several steps the sorts that all of them read in part. names: of the ops of each."""
    return [
        Sorted(one.op, max([one.read, *(each.read for each in theirs)]), one.of)
        for one, theirs in in_each(steps, names)
    ]


def _dimension(op: Op) -> int:
    """Along which dimension an op sorts: the first whole number among its arguments."""
    scalars = json.loads(op.scalars)
    return next((one for one in scalars if isinstance(one, int) and not isinstance(one, bool)), -1)


def _length(op: Op) -> int:
    sizes = op.outputs[0].sizes if op.outputs else []
    return sizes[_dimension(op)] if sizes and -len(sizes) <= _dimension(op) < len(sizes) else 0


def _reach(op: Op, made: Ref, seen: Sequence[Ref]) -> int:
    """How far from the nearer end on the elements are read; all of them where that cannot be told."""
    offset, sizes, strides = made.layout
    length, step = _length(op), strides[_dimension(op)] if sizes else 0
    plain = all(stride == math.prod(sizes[at + 1 :]) for at, stride in enumerate(strides))
    if not plain or not step:
        return length
    spans = [_span(ref.layout, offset, step, length) for ref in seen]
    if not all(spans):
        return length
    first, last = min(one[0] for one in spans if one), max(one[1] for one in spans if one)
    return min(last + 1, length - first)


def _span(form: tuple[int, list[int], list[int]], start: int, step: int, length: int) -> tuple[int, int] | None:
    """First and last element along the sorted dimension that a tensor looks at; None where it crosses its end."""
    offset, sizes, strides = form
    first = last = (offset - start) // step % length
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1 or stride == 0 or stride % (step * length) == 0:
            continue
        if stride % step == 0:
            last += (size - 1) * stride // step
        elif (size - 1) * stride >= step:
            return None
    return (first, last) if last < length else None

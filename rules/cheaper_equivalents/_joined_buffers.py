"""Large tensors that are joined again in each step for a few new rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import AUTOGRAD_NODE, Events, Ints, ObservedOps, Price, dims_of, sizes, starts_in

_NODE = f"{AUTOGRAD_NODE}: CatBackward"
_COPIES = ("aten::clone", "aten::contiguous", "aten::copy_")
# Between a cat and the copy of what it made stand views of it.
_VIEWS = ("aten::slice", "aten::narrow", "aten::detach", "aten::select", "aten::as_strided", "aten::view")
# Copying less than this takes no longer than the calls themselves.
_LEAST_BYTES = 256 << 10
_BYTES = 4  # of a number, as most are; what a type says more is not needed to tell large from small
_MOST_NEW = 0.1
# A step that has it now and then is an evaluation or an epoch's end.
_MOSTLY = 0.8
Shape = tuple[int, ...]
_Known = tuple[Shape, int, int]  # as of `Buffer`: shape, new rows, axis


class Buffer(Struct, frozen=True):
    """A buffer that is joined anew: its shape, rows that are new each time, and the ops: the cat, then each copy.

    axis: along which it is joined; what lies along the others is a row
    """

    shape: Shape
    new: int
    axis: int
    rows: tuple[tuple[int, ...], ...]  # one for each time

    @property
    def moved_bytes(self) -> int:
        """What one step copies, for numbers of four bytes."""
        return len(self.rows[0]) * math.prod(self.shape) * _BYTES

    def quickest_share(self, events: Events) -> float:
        """What the copies take where each is as quick as the quickest, as a share of what they took."""
        took_ns = events.dur_ns[np.array(self.rows, np.int64)]
        return float(np.quantile(took_ns, 0.1, axis=0).sum()) * len(self.rows) / max(float(took_ns.sum()), 1.0)


def joined_buffers(price: Price, seen: ObservedOps | None) -> Iterator[Buffer]:
    """Those that nearly every step joins anew, in the same shapes.

    Features are joined along other dimensions than the first: there the next step's `cat` has to read the result.
    """
    again = _read_by_itself(seen)
    events, rows = price.ops.events, price.ops.outermost
    for part in ("input", "optimizer"):
        if (spans := price.breakdown.intervals.get(part)) is not None:
            rows = rows[~starts_in(events.start_ns[rows], spans)]
    graph = set(events.sequence[events.named(_NODE)].tolist())
    found: dict[_Known, list[tuple[int, ...]]] = defaultdict(list)
    cats = events.exactly("aten::cat")[rows]
    for at in np.flatnonzero(cats).tolist():
        row = int(rows[at])
        known = _joined(dims_of(events, row))
        if known is not None and known[2] and row not in again:
            continue
        if known is not None and int(events.sequence[row]) not in graph:
            found[known].append((row, *_copies(events, rows[at + 1 :], known)))
    for (shape, new, axis), each in found.items():
        grows = any(
            _across(other, axis) == _across(shape, axis) and abs(other[axis] - shape[axis]) == new
            for other, _, along in found
            if along == axis
        )
        alike = {len(one) for one in each}
        if len(each) >= _MOSTLY * price.ops.steps.count and len(alike) == 1 and not grows:
            yield Buffer(shape, new, axis, tuple(each))


def _read_by_itself(seen: ObservedOps | None) -> set[int]:
    """Rows of the ops whose result the same op of the next step reads."""
    places = [made for made, reader in seen.seen.onward if made == reader] if seen is not None else []
    return {int(row) for rows in (seen.places if seen is not None else ()) for row in rows[places].tolist()} - {-1}


def _joined(dims: list[Any]) -> _Known | None:
    """The large tensor among those that are joined, with how many rows the others have; None where none is large."""
    listed = dims[0] if dims and isinstance(dims[0], list) else []
    # Some files hold one shape where a list of tensors was given.
    shapes = [tuple(one) for one in listed] if all(isinstance(one, list) for one in listed) else []
    if len(shapes) < 2 or not all(shape and all(isinstance(one, int) for one in shape) for shape in shapes):
        return None
    largest = max(shapes, key=math.prod)
    if math.prod(largest) * _BYTES < _LEAST_BYTES:
        return None
    for axis in range(len(largest)):
        alike = all(_across(one, axis) == _across(largest, axis) for one in shapes)
        new = sum(shape[axis] for shape in shapes) - largest[axis] if alike else 0
        if 0 < new <= _MOST_NEW * largest[axis]:
            return largest, new, axis
    return None


def _across(shape: Shape, axis: int) -> Shape | None:
    """A row of a tensor that is joined along that axis; None where it has no such axis."""
    return (*shape[:axis], *shape[axis + 1 :]) if axis < len(shape) else None


def _copies(events: Events, after: Ints, known: _Known) -> Iterator[int]:
    """The copies of what was joined that follow at once, nothing but views of it between them."""
    shape, new, axis = known
    for row in after.tolist():
        its: Shape = sizes(dims_of(events, row), 0)
        if events.text(row) not in (*_COPIES, *_VIEWS) or _across(its, axis) != _across(shape, axis):
            return
        if not (1 - _MOST_NEW) * shape[axis] <= its[axis] <= shape[axis] + new:
            return
        if events.text(row) in _COPIES:
            yield row

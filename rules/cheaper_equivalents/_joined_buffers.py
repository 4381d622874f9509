"""Large tensors that are joined again in each step for a few new rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import Events, Price, dataclass, dims_of, sizes, starts_in

from ._equivalent import Ints

_NODE = "autograd::engine::evaluate_function: CatBackward"
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


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer that is joined anew: its shape, rows that are new each time, and the ops: the cat, then each copy."""

    shape: Shape
    new: int
    rows: tuple[tuple[int, ...], ...]  # one for each time

    @property
    def moved_bytes(self) -> int:
        """What one step copies, for numbers of four bytes."""
        return len(self.rows[0]) * math.prod(self.shape) * _BYTES

    def quickest_share(self, events: Events) -> float:
        """What the copies take where each is as quick as the quickest, as a share of what they took."""
        took_ns = events.dur_ns[np.array(self.rows, np.int64)]
        return float(np.quantile(took_ns, 0.1, axis=0).sum()) * len(self.rows) / max(float(took_ns.sum()), 1.0)


def joined_buffers(price: Price) -> Iterator[Buffer]:
    """Those that nearly every step joins anew, in the same shapes."""
    events, rows = price.ops.events, price.ops.outermost
    for part in ("input", "optimizer"):
        if (spans := price.breakdown.intervals.get(part)) is not None:
            rows = rows[~starts_in(events.start_ns[rows], spans)]
    graph = set(events.sequence[events.named(_NODE)].tolist())
    found: dict[tuple[Shape, int], list[tuple[int, ...]]] = defaultdict(list)
    cats = events.exactly("aten::cat")[rows]
    for at in np.flatnonzero(cats).tolist():
        row = int(rows[at])
        known = _joined(dims_of(events, row))
        if known is not None and int(events.sequence[row]) not in graph:
            found[known].append((row, *_copies(events, rows[at + 1 :], known)))
    for (shape, new), each in found.items():
        grows = any(other[1:] == shape[1:] and abs(other[0] - shape[0]) == new for other, _ in found)
        alike = {len(one) for one in each}
        if len(each) >= _MOSTLY * price.ops.steps.count and len(alike) == 1 and not grows:
            yield Buffer(shape, new, tuple(each))


def _joined(dims: list[Any]) -> tuple[Shape, int] | None:
    """The large tensor among those that are joined, and how many rows the others have; None where none is large."""
    shapes = [tuple(one) for one in dims[0]] if dims and isinstance(dims[0], list) else []
    if len(shapes) < 2 or not all(shape and all(isinstance(one, int) for one in shape) for shape in shapes):
        return None
    largest = max(shapes, key=math.prod)
    new = sum(shape[0] for shape in shapes) - largest[0]
    if any(shape[1:] != largest[1:] for shape in shapes) or not 0 < new <= _MOST_NEW * largest[0]:
        return None
    return (largest, new) if math.prod(largest) * _BYTES >= _LEAST_BYTES else None


def _copies(events: Events, after: Ints, known: tuple[Shape, int]) -> Iterator[int]:
    """The copies of what was joined that follow at once, nothing but views of it between them."""
    shape, new = known
    for row in after.tolist():
        its: Shape = sizes(dims_of(events, row), 0)
        if events.text(row) not in (*_COPIES, *_VIEWS) or its[1:] != shape[1:]:
            return
        if not (1 - _MOST_NEW) * shape[0] <= its[0] <= shape[0] + new:
            return
        if events.text(row) in _COPIES:
            yield row

"""A large buffer is copied whole to insert a few rows.

## What it looks at
`torch.cat` of a large tensor (256 kB or more) with a tenth of its rows or fewer, outside of autograd and of the
loader, with the same shapes in every step: a queue of keys (MoCo), a replay memory, a history of fixed length. Copies
of the result that follow immediately are included. Shapes have to be recorded. A tensor that grows with each `cat` is
no such buffer.

## Why it costs time
The new rows are few, but all others are read and written again, often into memory that is newly allocated from the
operating system.

## How to fix it
Keep one tensor, and overwrite the oldest rows at a position that wraps around: `queue[at : at + n] = keys`.

## When to leave it
Where the order of the rows matters to the code that reads them, and cannot be derived from the position of the oldest
row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    FORWARD,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    dataclass,
    dims_of,
    sizes,
    starts_in,
)

from ..shared._words import plural, size
from ._equivalent import Equivalent, Ints, rows_of, worth
from ._examples import op, two_steps

CONFIRMED = (
    "measured pair on a CPU: a queue of 16,384 keys concatenated in each step against one that is written in place"
)

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
class _Buffer:
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


_HOW = "low: the time of the fastest copy; high: the mean, including copies into newly allocated memory"
_FIX = Fix(
    "Overwrite the oldest rows in place",
    "numerics",
    "queue = torch.cat([keys, queue])[:size].clone()",
    "queue[at : at + len(keys)] = keys\nat = (at + len(keys)) % size",
)


def check(
    price: Price,
    lines: Lines,
    *,
    min_share: float = 0.03,  # two lines to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    for buffer in _buffers(price):
        quick = 1.0 if price.on_device else min(buffer.quickest_share(price.ops.events), 1.0)
        one = Equivalent(
            parts=((rows_of(*(row for each in buffer.rows for row in each)), quick, 1.0),),
            how=_HOW,
            claims=("other_ops", "forward"),
            instead_us=price.added.calls_us("op_calls.single"),
            at_most="medium",  # something may read the rows in their order
        )
        if known := worth(price, lines, one, min_share):
            yield known.finding(
                f"A tensor of {' x '.join(f'{one:,}' for one in buffer.shape)} numbers is copied whole{known.at} "
                f"to insert {plural(buffer.new, 'row')}, {size(buffer.moved_bytes)} in all: {known.spent}.",
                {"rows": buffer.shape[0], "new_rows": buffer.new, "copy_us": known.spent_us},
                _FIX,
            )


def _buffers(price: Price) -> Iterator[_Buffer]:
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
            yield _Buffer(shape, new, tuple(each))


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


def _cat(*shapes: list[int], launches: str | None = None) -> Ev:
    return op("cat", [*shapes], [], launches=launches)


def _drawn(**changed: Any) -> Drawing:
    """A layer (F), a backward pass (B), the rows joined with the queue (C), a view (V) and a copy (D) of the result."""
    ops: dict[str, Any] = {
        "C": _cat([32, 64], [16384, 64]),
        "V": op("slice", [16416, 64]),
        "D": op("clone", [16384, 64]),
    }
    return two_steps("[F   ][B     ][C     ][V][D    ]", **(ops | changed))


_ON_GPU = two_steps(
    "[F   ][B     ][C     ]",
    gpu="     [K          ][E       ]",
    F=op("linear", launches="kernel"),
    C=_cat([32, 64], [16384, 64], launches="kernel"),
)
_TWO_VIEWS = _drawn(C=_cat([8192, 64], [8192, 64]))
_TOKENS = _drawn(C=_cat([64, 1, 256], [64, 196, 256]))
_GROWING = _drawn(C=_cat([16384, 64], [32, 64]), D=_cat([16416, 64], [32, 64]))
_SHORT = _drawn(C=_cat([4, 64], [512, 64]), D=op("clone", [512, 64]))
_IN_PLACE = _drawn(C=op("copy_", [32, 64], [32, 64]), D=FORWARD)

EXAMPLES = [
    Example("a queue of keys", _drawn(), saves_us=(1100, 1700), says=("16,384 x 64", "32 rows")),
    Example("the same beside a GPU", _ON_GPU, saves_us=(500, 1100)),
    Example("two views of a batch", _TWO_VIEWS, None, near_miss=True),
    Example("a token in front of each picture's", _TOKENS, None, near_miss=True),
    Example("scores that grow by a batch each time", _GROWING, None, near_miss=True),
    Example("a short queue", _SHORT, None, near_miss=True),
    Example("new rows are written over the oldest ones", _IN_PLACE, None),
]

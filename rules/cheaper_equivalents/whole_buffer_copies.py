"""A large buffer is copied whole to insert a few rows.

## What it looks at
`torch.cat` of a large tensor (256 kB or more) with a tenth of its rows or fewer, outside of autograd and of the
loader, with the same shapes in every step: a queue of keys (MoCo), a replay memory, a history of fixed length. Copies
of the result that follow immediately are included. Joined along another dimension (columns), it is a buffer if the
same `cat` of the next step reads it, which `advisor run` observes. Shapes must be recorded. A tensor that grows with
each `cat` is not such a buffer.

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

from collections.abc import Iterator
from typing import Any

from advisor.api import FORWARD, Drawing, Ev, Example, Finding, Fix, Lines, ObservedOps, Price, data_size

from ..shared._examples import observed, op, two_steps
from ..shared._words import plural
from ._equivalent import Equivalent, rows_of, worth
from ._joined_buffers import joined_buffers

CONFIRMED = (
    "measured pair on a CPU: a queue of 16,384 keys concatenated in each step against one that is written in place"
)

_HOW = "low: the time of the fastest copy; high: the mean, including copies into newly allocated memory"
_FIX = Fix(
    "Overwrite the oldest rows in place",
    "numerics",
    "queue = torch.cat([keys, queue])[:size].clone()",
    "queue[at : at + len(keys)] = keys\nat = (at + len(keys)) % size",
)

_COLUMNS = Fix(
    "Overwrite the oldest columns in place",
    "numerics",
    "queue = torch.cat([keys.T, queue], dim=1)[:, :size]",
    "queue[:, at : at + len(keys)] = keys.T\nat = (at + len(keys)) % size",
)


def check(
    price: Price,
    lines: Lines,
    seen: ObservedOps | None,
    *,
    min_share: float = 0.03,  # two lines to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    for buffer in joined_buffers(price, seen):
        quick = 1.0 if price.on_device else min(buffer.quickest_share(price.ops.events), 1.0)
        one = Equivalent(
            parts=((rows_of(*(row for each in buffer.rows for row in each)), quick, 1.0),),
            how=_HOW,
            claims=("other_ops", "forward"),
            instead_us=price.added.calls_us("op_calls.single"),
            at_most="medium",  # something may read the rows in their order
        )
        if known := worth(price, lines, one, min_share):
            new = plural(buffer.new, "column" if buffer.axis else "row")
            yield known.finding(
                f"A tensor of {' x '.join(f'{one:,}' for one in buffer.shape)} numbers is copied whole{known.at} to "
                f"insert {new}, {data_size(buffer.moved_bytes)} in all: {known.spent}.",
                {"rows": buffer.shape[buffer.axis], "new_rows": buffer.new, "copy_us": known.spent_us},
                _COLUMNS if buffer.axis else _FIX,
            )


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


def _seen(**more: Any) -> dict[str, Any]:
    """Facts of a step with a queue in columns: onward: the next step's ops that read results of this one's."""
    return observed("linear cat slice linear", [[], [], [1], []], **more)


_ON_GPU = two_steps(
    "[F   ][B     ][C     ]",
    gpu="     [K          ][E       ]",
    F=op("linear", launches="kernel"),
    C=_cat([32, 64], [16384, 64], launches="kernel"),
)
_LAYER = op("linear", [8, 64], [64, 64], [64])
_COLUMNWISE = _drawn(F=_LAYER, C=_cat([128, 32], [128, 65536]), V=op("slice", [128, 65568]), D=_LAYER)
_CHANNELS = _drawn(C=_cat([8, 4, 64, 64], [8, 48, 64, 64]))
_TWO_VIEWS = _drawn(C=_cat([8192, 64], [8192, 64]))
_TOKENS = _drawn(C=_cat([64, 1, 256], [64, 196, 256]))
_GROWING = _drawn(C=_cat([16384, 64], [32, 64]), D=_cat([16416, 64], [32, 64]))
_SHORT = _drawn(C=_cat([4, 64], [512, 64]), D=op("clone", [512, 64]))
_IN_PLACE = _drawn(C=op("copy_", [32, 64], [32, 64]), D=FORWARD)

EXAMPLES = [
    Example("a queue of keys", _drawn(), saves_us=(1100, 1700), says=("16,384 x 64", "32 rows")),
    Example(
        "a queue of keys in columns, cut by a view",
        _COLUMNWISE,
        saves_us=(600, 900),
        facts=_seen(onward=[(1, 1)]),
        says=("128 x 65,536", "32 columns"),
    ),
    Example("columns beside others, which no later step reads", _COLUMNWISE, None, _seen(), near_miss=True),
    Example("the same beside a GPU", _ON_GPU, saves_us=(500, 1100)),
    Example("two views of a batch", _TWO_VIEWS, None, near_miss=True),
    Example("a token in front of each picture's", _TOKENS, None, near_miss=True),
    Example("a few more channels of a picture's features", _CHANNELS, None, near_miss=True),
    Example("scores that grow by a batch each time", _GROWING, None, near_miss=True),
    Example("a short queue", _SHORT, None, near_miss=True),
    Example("new rows are written over the oldest ones", _IN_PLACE, None),
]

"""Every in-place write into a slice copies the whole gradient of the tensor.

## What it looks at
Backward passes in which the node of an in-place write (`CopySlices`) runs three times or more on a tensor of one
shape, each time for another part of it: a loop that fills a table, row by row, with `outputs[:, t] = scores`. Writes
through masks, which may be anywhere, are not reported. Shapes must be recorded.

## Why it costs time
Autograd cannot know that the rest of the tensor is unchanged. For each write the backward pass copies the whole
gradient, fills the written part with zeros, and passes that part on: a table of 32 columns is copied 32 times.

## How to fix it
Collect the results in a list, and combine them once with `torch.stack` (or `torch.cat`): its backward pass only takes
views of one gradient.

## When to leave it
Tables in which later iterations read what earlier ones wrote in many places. If an iteration needs only the last few
results, it can read them from the list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from advisor.api import BackwardPasses, Drawing, Ev, Example, Finding, Fix, Lines, Price

from ..shared._examples import node, op, two_steps
from ..shared._words import plural
from ._equivalent import Equivalent, rows_of, worth
from ._slice_writes import PLAIN, WRITE, is_filled, tables_in, writers

CONFIRMED = "measured pair on a CPU: scores of a decoder, written word by word into a tensor against stacked at the end"

_HOW = (
    "low: each node takes as long as the fastest of the copies, into memory that is already mapped; high: as long as "
    "it took, much of it into newly allocated memory"
)
_FIX = Fix(
    "Collect the results in a list and call `torch.stack` once",
    "exact",
    "outputs = torch.zeros(batch, length, words)\nfor t in range(length):\n    outputs[:, t] = scores",
    "outputs = []\nfor t in range(length):\n    outputs.append(scores)\noutputs = torch.stack(outputs, 1)",
)


def check(
    price: Price,
    backward: BackwardPasses,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a list in place of a table: below 3 % of the step the gain is within the noise
) -> Iterator[Finding]:
    ops, events = price.ops, price.ops.events
    if not events.named(WRITE).any():
        return
    tables = backward.seen(
        lambda passes: [table for one in passes for table in tables_in(events, one.nodes) if is_filled(table)]
    )
    if not tables:
        return
    calls = rows_of(*(row for table in tables for row in table.calls))
    quick, how = 1.0, "what the backward nodes of these writes launch"
    if not price.on_device:
        quick_ns = sum(int(events.dur_ns[list(table.copies)].min()) * len(table.calls) for table in tables)
        quick, how = min(quick_ns / int(events.dur_ns[calls].sum()), 1.0), _HOW
    one = Equivalent(parts=((calls, quick, 1.0),), how=how, claims=("backward",), shown=writers(events, calls))
    if known := worth(price, lines, one, min_share):
        largest = max(tables, key=lambda one: len(one.calls) * math.prod(one.shape))
        writes = len(calls) / ops.steps.count
        yield known.finding(
            f"{plural(round(writes), 'write')} a step{known.at} into parts of a tensor of "
            f"{' x '.join(f'{one:,}' for one in largest.shape)} numbers make the backward pass copy its whole gradient "
            f"each time: {known.spent}.",
            {"writes": writes, "numbers": math.prod(largest.shape)},
            _FIX,
        )


_TABLE, _PART = [16, 32, 1200], [16, 1200]


def _drawn(shape: list[int], part: list[int], written: str = PLAIN, called: str = WRITE, gpu: str = "") -> Drawing:
    """Three writes (V), a loss (A), the writes' nodes (C, D, G), in each the gradient's copy (K) and the part (P)."""
    return two_steps(
        "[V][V][V][A ][C        ][D        ][G        ][O]",
        "             [Y       ] [Y       ] [Y       ]",
        "              [K   ][P]  [K   ][P]  [K   ][P]",
        gpu=gpu,
        V=op("copy_", part, part, number=7),
        A=node(9, "MeanBackward0"),
        **{letter: node(at, called) for letter, at in (("C", 8), ("D", 6), ("G", 4))},
        Y=Ev(called, dims=[shape]),
        K=op("copy_", shape, shape, launches="kernel" if gpu else None),
        P=Ev(written, dims=[part]),
    )


_ON_GPU = _drawn(_TABLE, _PART, gpu="               [E   ]     [E   ]     [E   ]")

EXAMPLES = [
    Example(
        "scores written word by word",
        _drawn(_TABLE, _PART),
        saves_us=(1700, 3400),
        says=("3 writes a step", "16 x 32 x 1,200"),
    ),
    Example("the same beside a GPU", _ON_GPU, saves_us=(800, 1900)),
    Example("written through a mask, each time all of it", _drawn(_PART, _PART), None, near_miss=True),
    Example("added to what stood there, without an assignment", _drawn(_TABLE, _PART, "AddBackward0"), near_miss=True),
    Example("stacked", _drawn(_TABLE, _PART, called="StackBackward0"), None),
]

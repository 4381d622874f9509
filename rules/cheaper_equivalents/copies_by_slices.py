"""Every in-place write into a slice copies the whole gradient of the tensor.

## What it looks at
Backward passes in which the node of an in-place write (`CopySlices`) runs three times or more on a tensor of one shape,
each time for another part of it: a loop that fills a table, row by row, with `outputs[:, t] = scores`. Writes through
masks, which may be anywhere, are left out. Shapes have to be recorded.

## Why it costs time
Autograd cannot know that the rest of the tensor is unchanged. For each write the backward pass copies the whole
gradient, fills the written part with zeros, and passes that part on: a table of 32 columns is copied 32 times.

## How to fix it
Collect the results in a list, and combine them once with `torch.stack` (or `torch.cat`): its backward pass only takes
views of one gradient.

## When to leave it
Tables in which later iterations read what earlier ones wrote, in many places at once. Where an iteration only needs
the last few results, it can read them from the list.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from advisor.api import (
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    backward_passes,
    dataclass,
    dims_of,
    sizes,
)

from ..shared._words import plural
from ._equivalent import Equivalent, Ints, rows_of, worth
from ._examples import node, op, two_steps

CONFIRMED = "measured pair on a CPU: scores of a decoder, written word by word into a tensor against stacked at the end"

Shape = tuple[int, ...]
_WRITE = "torch::autograd::CopySlices"
# A write that does not read what stood there.
_PLAIN = "torch::autograd::CopyBackwards"
# One or two writes are no loop, and what stacks two parts copies them, too.
_LEAST = 3
# Between a write and its node's number lie those of the views that autograd makes anew.
_NUMBERS = 2
# Writes whose line is asked for; where these have none, neither have others.
_TRIED = 8


@dataclass(frozen=True, slots=True)
class _Table:
    """A tensor that one backward pass takes apart. calls: engine calls; copies: the copy of the gradient in each."""

    shape: Shape
    part: Shape
    calls: tuple[int, ...]
    copies: tuple[int, ...]


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
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a list in place of a table: below 3 % of the step the gain is within the noise
) -> Iterator[Finding]:
    ops, events = price.ops, price.ops.events
    passes = backward_passes.passes(ops.trace, ops.steps, ops.nesting)
    tables = [table for one in passes for table in _tables(events, one.nodes) if _is_filled(table)]
    if not tables:
        return
    calls = rows_of(*(row for table in tables for row in table.calls))
    quick, how = 1.0, "what the backward nodes of these writes launch"
    if not price.on_device:
        quick_ns = sum(int(events.dur_ns[list(table.copies)].min()) * len(table.calls) for table in tables)
        quick, how = min(quick_ns / int(events.dur_ns[calls].sum()), 1.0), _HOW
    one = Equivalent(parts=((calls, quick, 1.0),), how=how, claims=("backward",), shown=_writers(events, calls))
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


def _tables(events: Events, nodes: Sequence[int]) -> Iterator[_Table]:
    """The tensors into parts of which a forward pass wrote, by their shape and that of the parts."""
    found: dict[tuple[Shape, Shape], list[tuple[int, int]]] = defaultdict(list)
    for call in nodes:
        if not events.text(call).endswith(_WRITE):
            continue
        rows = backward_passes.inside(events, call)
        shape = next((sizes(dims_of(events, row), 0) for row in rows if events.text(row) == _WRITE), ())
        part = next((sizes(dims_of(events, row), 0) for row in rows if events.text(row) == _PLAIN), ())
        copies = [row for row in rows if events.text(row) == "aten::copy_" and sizes(dims_of(events, row), 0) == shape]
        if shape and part and copies:
            found[shape, part].append((call, copies[0]))
    for (shape, part), pairs in found.items():
        yield _Table(shape, part, tuple(call for call, _ in pairs), tuple(copy for _, copy in pairs))


def _is_filled(table: _Table) -> bool:
    """Whether several writes share the tensor among them, none over another."""
    return len(table.calls) >= _LEAST and len(table.calls) * math.prod(table.part) <= math.prod(table.shape)


def _writers(events: Events, calls: Ints) -> Ints:
    """The first forward ops that wrote such parts."""
    numbers = np.unique(events.sequence[calls][:, None] - np.arange(_NUMBERS + 1))
    copies = events.exactly("aten::copy_") & (events.forward_thread <= 0)
    rows: Ints = np.flatnonzero(copies & np.isin(events.sequence, numbers[numbers > 0]))
    return rows[:_TRIED]


_TABLE, _PART = [16, 32, 1200], [16, 1200]


def _drawn(shape: list[int], part: list[int], written: str = _PLAIN, called: str = _WRITE, gpu: str = "") -> Drawing:
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
    Example(
        "added to what stood there, without an assignment",
        _drawn(_TABLE, _PART, "AddBackward0"),
        saves_us=None,
        near_miss=True,
    ),
    Example("stacked", _drawn(_TABLE, _PART, called="StackBackward0"), None),
]

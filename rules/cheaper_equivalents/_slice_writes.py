"""Tensors that a forward pass fills part by part, and what that costs the backward pass."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.api import Events, Ints, backward_passes, dims_of, sizes

from ..shared._places import TRIED

Shape = tuple[int, ...]
WRITE = "torch::autograd::CopySlices"
# A write that does not read what stood there.
PLAIN = "torch::autograd::CopyBackwards"
# One or two writes are no loop, and what stacks two parts copies them, too.
_LEAST = 3
# Between a write and its node's number lie those of the views that autograd makes anew.
_NUMBERS = 2


class FilledTable(Struct, frozen=True):
    """A tensor that one backward pass takes apart. calls: engine calls; copies: the copy of the gradient in each."""

    shape: Shape
    part: Shape
    calls: tuple[int, ...]
    copies: tuple[int, ...]


def tables_in(events: Events, nodes: Sequence[int]) -> Iterator[FilledTable]:
    """The tensors into parts of which a forward pass wrote, by their shape and that of the parts."""
    found: dict[tuple[Shape, Shape], list[tuple[int, int]]] = defaultdict(list)
    for call in nodes:
        if not events.text(call).endswith(WRITE):
            continue
        rows = backward_passes.inside(events, call)
        shape = next((sizes(dims_of(events, row), 0) for row in rows if events.text(row) == WRITE), ())
        part = next((sizes(dims_of(events, row), 0) for row in rows if events.text(row) == PLAIN), ())
        copies = [row for row in rows if events.text(row) == "aten::copy_" and sizes(dims_of(events, row), 0) == shape]
        if shape and part and copies:
            found[shape, part].append((call, copies[0]))
    for (shape, part), pairs in found.items():
        yield FilledTable(shape, part, tuple(call for call, _ in pairs), tuple(copy for _, copy in pairs))


def is_filled(table: FilledTable) -> bool:
    """Whether several writes share the tensor among them, none over another."""
    return len(table.calls) >= _LEAST and len(table.calls) * math.prod(table.part) <= math.prod(table.shape)


def writers(events: Events, calls: Ints) -> Ints:
    """The first forward ops that wrote such parts."""
    numbers = np.unique(events.sequence[calls][:, None] - np.arange(_NUMBERS + 1))
    copies = events.exactly("aten::copy_") & (events.forward_thread <= 0)
    rows: Ints = np.flatnonzero(copies & np.isin(events.sequence, numbers[numbers > 0]))
    return rows[:TRIED]

"""Tensors that were enlarged by saying the same again: what they were before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from advisor.api import Events, Ints, dims_of, sizes

Shape = tuple[int, ...]

# Ops that make a larger tensor of the same numbers: by looking at them more than once, or by copying them.
LOOKS = frozenset(f"aten::{name}" for name in ("expand", "expand_as", "broadcast_to"))
COPIES = frozenset(f"aten::{name}" for name in ("repeat", "repeat_interleave", "tile"))
# What stands between such an op and the one that reads the result: the other operands' own, and views.
_NEAR = 10


def broadcast(left: Shape, right: Shape) -> Shape:
    """The shape that both are broadcast to; () where they do not fit."""
    length = max(len(left), len(right))
    pairs = list(zip((1,) * (length - len(left)) + left, (1,) * (length - len(right)) + right, strict=True))
    if not left or not right or any(a != b and 1 not in (a, b) for a, b in pairs):
        return ()
    return tuple(max(pair) for pair in pairs)


def is_enlarged(small: Shape, large: Shape) -> bool:
    """Whether a tensor of the first shape can be looked at in the second, larger one."""
    return bool(small) and math.prod(small) < math.prod(large) and broadcast(small, large) == large


def originals(events: Events, ops: Ints, operands: int) -> list[Shape]:
    """Shapes of the last op's operands, each as it was before an op shortly before expanded it.

    ops: outermost ops in order, the last of which is asked about.
    """
    dims = dims_of(events, int(ops[-1]))
    shapes = [sizes(dims, at) for at in range(operands)]
    before = [row for row in ops[-1 - _NEAR : -1].tolist() if events.text(row) in LOOKS | {"aten::broadcast_tensors"}]
    for row in reversed(before):
        for small in _given(events, row):
            for at, shape in enumerate(shapes):
                if is_enlarged(small, shape):
                    shapes[at] = small
                    break
    return shapes


def _given(events: Events, row: int) -> Sequence[Shape]:
    dims: list[Any] = dims_of(events, row)
    if events.text(row) == "aten::broadcast_tensors" and dims and isinstance(dims[0], list):
        return [sizes(dims[0], at) for at in range(len(dims[0]))]
    return [sizes(dims, 0)]

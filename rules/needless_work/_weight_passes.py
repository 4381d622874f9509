"""Weights that a script updates op by op: how often these ops go through memory, and how often one op would."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import (
    BACKWARD,
    Events,
    Intervals,
    Ints,
    Price,
    RowMask,
    StateReads,
    by_dims,
    constant,
    dims_of,
    have_nodes,
    sizes,
)

Shape = tuple[int, ...]

# Sums of weights times numbers, and copies of such sums.
_SUMS = tuple(f"aten::{name}" for name in ("add", "add_", "sub", "sub_", "lerp"))
_SCALED = tuple(f"aten::{name}" for name in ("mul", "mul_", "div", "div_"))
_COPIED = ("aten::copy_", "aten::clone")
# What handles tensors without computing with them: these may stand between.
_HANDLING = tuple(
    f"aten::{name}"
    for names in (
        ("detach", "detach_", "alias", "view", "to", "_to_copy"),
        ("empty", "empty_like", "zeros_like", "lift_fresh"),
    )
    for name in names
)
_OF_OTHERS = ("Optimizer.", "enumerate(DataLoader)#", BACKWARD.name.split(":")[0])
# A quarter of the weights' bytes: an average of a generator beside a larger discriminator is one, and a sum of two
# activations that happen to have the shape of one layer's weight is none.
_LEAST_OF = 0.25
# An op that takes no longer is a call above all, and a loop of those is the rule tensor-loop's.
_SHORT_US = constant("calls.short_op_us").value
# One op reads two tensors and writes one. It was measured to take up to so many times its share of the passes.
_ONE_OP = 3
_SLOWER = constant("share.one_pass_slower").value


class WeightPasses(Struct, frozen=True, eq=False):
    """Runs of ops that sum weights times numbers, in all profiled steps.

    rows       the ops on tensors of the weights' shapes;  sums: those of them that add or subtract two tensors
    spans      from the first to the last op of each run, and what freeing their results takes
    passes     numbers that they read and write;  needed: those that one op for each sum would, at most
    quickest   numbers per ns of the op that goes through memory quickest
    calls      ops on the weights that a step runs
    """

    rows: Ints
    sums: Ints
    spans: Intervals
    passes: float
    needed: float
    quickest: float
    calls: float

    def stays(self, price: Price) -> tuple[float, float]:
        """The least and the most share of the time of these spans that one op for each sum takes."""
        spent_ns = float((self.spans[:, 1] - self.spans[:, 0]).sum())
        copied_us, _ = price.added.copied_us(self.needed / 2 * 4)
        quick_ns = min(self.needed / self.quickest, 1e3 * copied_us)
        most = min(_SLOWER * self.needed / self.passes, 1.0)
        return min(quick_ns / spent_ns, most), most


def weight_passes(price: Price, state: StateReads) -> WeightPasses | None:
    """What they are; None where the script sums no weights, does it in one op each, or in short ops."""
    events, steps = price.ops.events, price.ops.steps
    runs = list(_runs(price, state.weights))
    if not runs:
        return None
    rows = np.concatenate([mine for mine, _ in runs])
    _, first, which = np.unique(events.dims[rows], return_index=True, return_inverse=True)
    each = [sizes(dims_of(events, row), 0) for row in rows[first].tolist()]
    shapes = [each[at] for at in which.tolist()]
    numbers = np.array([math.prod(shape) for shape in shapes], float)
    through = numbers * _passes(events, rows)
    sums = _are_sums(events, rows)
    summed = Counter(shape for shape, is_sum in zip(shapes, sums.tolist(), strict=True) if is_sum)
    covered = sum(
        min(times / steps.count, state.weights[shape]) * math.prod(shape) * 4 for shape, times in summed.items()
    )
    needed = _ONE_OP * float(numbers[sums].sum())
    took_ns = events.dur_ns[rows]
    if covered < _LEAST_OF * state.parameter_bytes or needed >= through.sum() or took_ns.mean() <= 1e3 * _SHORT_US:
        return None
    large = took_ns > 1e3 * _SHORT_US
    return WeightPasses(
        rows=rows,
        sums=rows[sums],
        spans=np.array([span for _, span in runs], np.int64),
        passes=float(through.sum()),
        needed=needed,
        quickest=float((through[large] / took_ns[large]).max()),
        calls=len(rows) / steps.count,
    )


def _runs(price: Price, weights: Counter[Shape]) -> Iterator[tuple[Ints, tuple[int, int]]]:
    """For each run of such ops its rows on tensors of the weights' shapes, and when it begins and ends, ns."""
    events, ops = price.ops.events, price.ops
    others = ops.nesting.within(events.named(*_OF_OTHERS))
    rows = ops.outermost
    rows = rows[~others[rows]]
    mine = events.exactly(*_SUMS, *_SCALED, *_COPIED)[rows]
    between = events.exactly(*_HANDLING)[rows]
    of_weights = mine.copy()
    of_weights[mine] = by_dims(events, rows[mine], lambda dims: sizes(dims, 0) in weights)
    if not of_weights.any():
        return
    step = ops.links.step[rows]
    allowed = of_weights | between
    changes = np.flatnonzero((allowed[1:] != allowed[:-1]) | (step[1:] != step[:-1])) + 1
    # Forward ops have a part in the backward pass; an average of the weights has none.
    other = of_weights & ~_linear(events, rows)
    other[of_weights] |= have_nodes(events, rows, rows[of_weights])
    sums = of_weights & _are_sums(events, rows)
    for run in np.split(np.arange(len(rows)), changes):
        inner = run[of_weights[run]]
        if sums[inner].any() and not other[inner].any():
            yield rows[inner], _span(events, rows, int(inner[0]), int(inner[-1]))


def _span(events: Events, rows: Ints, first: int, last: int) -> tuple[int, int]:
    """From the first op to the last, with what follows it as far as that is like what lies between them."""
    gaps = events.start_ns[rows[first + 1 : last + 1]] - events.end_ns[rows[first:last]]
    end = int(events.end_ns[rows[last]])
    after = int(events.start_ns[rows[last + 1]]) if last + 1 < len(rows) else end
    return int(events.start_ns[rows[first]]), min(max(after, end), end + int(gaps.max(initial=0)))


def _tensors(dims: list[Any]) -> int:
    """How many operands of an op have the shape of its first one."""
    shape = sizes(dims, 0)
    return sum(sizes(dims, at) == shape for at in range(len(dims)))


def _are_sums(events: Events, rows: Ints) -> RowMask:
    of_two: RowMask = by_dims(events, rows, _tensors) == 2
    return events.exactly(*_SUMS)[rows] & of_two


def _linear(events: Events, rows: Ints) -> RowMask:
    """Which ops scale a tensor by a number, add two, or copy one."""
    of_one: RowMask = by_dims(events, rows, _tensors) == 1
    return ~events.exactly(*_SCALED)[rows] | of_one


def _passes(events: Events, rows: Ints) -> Ints:
    """How often each op goes through memory of the size of its first operand."""
    return np.where(events.exactly(*_COPIED)[rows], 2, by_dims(events, rows, _tensors) + 1)

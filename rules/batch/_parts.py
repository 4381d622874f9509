"""Batches that the loop takes apart again: how many passes over parts of it a step runs."""

from __future__ import annotations

from collections import Counter

import numpy as np

from advisor.api import BACKWARD, Category, Price, dims_of, sizes

Shape = tuple[int, ...]

# Fewer may be the two views of a sample, or the parts of a model.
_LEAST = 4
_LAYERS = ("aten::linear", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution", "aten::addmm")


def passes_over(price: Price, batch: int) -> int:
    """How many passes a step runs over parts of so many samples of one tensor, one after another; 1 where none does.

    Each part is taken from the same tensor by its first dimension, and every layer runs as often as there are parts, or
    a multiple. Where the parts may be points of time instead (the next dimension has as many as a pass), it is 1.
    """
    events, ops = price.ops.events, price.ops
    taking = ops.outermost_named("aten::select", "aten::slice", "aten::unbind")
    taken: Counter[Shape] = Counter()
    for row in taking.tolist():
        shape, name = sizes(dims_of(events, row), 0), events.text(row)
        if shape and (batch == 1 or name == "aten::slice"):
            taken[shape] += shape[0] if name == "aten::unbind" else 1
    for shape, times in taken.items():
        parts, rest = divmod(shape[0], batch)
        time_first = len(shape) > 1 and shape[1] == batch
        if parts >= _LEAST and not rest and not time_first and times == parts * ops.steps.count:
            return parts if _runs_for_each(price, shape, batch, parts) else 1
    return 1


def _runs_for_each(price: Price, shape: Shape, batch: int, parts: int) -> bool:
    """Whether the forward layers on a part run as often as there are parts of this shape, or a multiple of that."""
    events, ops = price.ops.events, price.ops
    backward = ops.nesting.within(events.named(BACKWARD.name.split(":")[0]))
    found = events.exactly(*_LAYERS) & events.of(Category.CPU_OP) & ops.links.inside & ~backward & (events.dims >= 0)
    times: Counter[tuple[str, int]] = Counter()
    inputs: set[Shape] = set()
    for row in np.flatnonzero(found).tolist():
        seen = sizes(dims_of(events, row), 1 if events.text(row) == "aten::addmm" else 0)
        if seen[:1] == (batch,):
            times[events.text(row), int(events.dims[row])] += 1
            inputs.add(seen)
    # Along which dimension parts are taken is not recorded: where another is as long, a layer has to take such a part.
    if shape[0] in shape[1:] and (batch, *shape[1:]) not in inputs:
        return False
    return bool(times) and all(number % (parts * ops.steps.count) == 0 for number in times.values())

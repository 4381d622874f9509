"""Tensors between all samples of a batch of which each sample's own part is read."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Price, dims_of, sizes

_READS = ("aten::index", "aten::diagonal", "aten::sum", "aten::einsum")
# (batch, outputs, batch, inputs)
_DIMENSIONS, _BATCHES = 4, (0, 2)
# Below, two sizes that are equal by chance are likely.
_LEAST_BATCH = 4


def read_apart(price: Price) -> set[tuple[int, int]]:
    """(batch, outputs) of tensors of which one op takes a sample's own part."""
    events = price.ops.events
    rows = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly(*_READS) & (events.dims >= 0))
    of_dims = dict(zip(events.dims[rows].tolist(), rows.tolist(), strict=True))
    shapes = [sizes(dims_of(events, row), 0) for row in of_dims.values()]
    first, again = _BATCHES
    return {
        (shape[first], shape[1])
        for shape in shapes
        if len(shape) == _DIMENSIONS and shape[first] == shape[again] >= _LEAST_BATCH
    }

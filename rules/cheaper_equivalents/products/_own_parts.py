"""Tensors between all samples of a batch of which each sample's own part is read."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Price, dims_of, sizes

_READS = ("aten::index", "aten::diagonal", "aten::sum", "aten::einsum")
# Below, two sizes that are equal by chance are likely.
_LEAST_BATCH = 4


def read_apart(price: Price) -> set[tuple[int, int]]:
    """(batch, outputs) of tensors of which one op takes a sample's own part."""
    events = price.ops.events
    rows = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly(*_READS) & (events.dims >= 0))
    of_dims = dict(zip(events.dims[rows].tolist(), rows.tolist(), strict=True))
    shapes = [sizes(dims_of(events, row), 0) for row in of_dims.values()]
    return {known for shape in shapes if (known := _between_samples(shape))}


def _between_samples(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Of (batch, outputs, batch, inputs …) batch and outputs; of (batch, batch, inputs …) there is one output."""
    if len(shape) > 3 and shape[0] == shape[2] >= _LEAST_BATCH:
        return shape[0], shape[1]
    return (shape[0], 1) if len(shape) > 2 and shape[0] == shape[1] >= _LEAST_BATCH else None

"""Products with a matrix that is mostly zeros, and what the same ones take with it in sparse form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from advisor.api import AUTOGRAD_NODE, Price, SparseProduct, StepOps, constant, dims_of, sizes

# Sparse products with what is around them, against the products alone.
_AROUND = constant("share.sparse_around").value
# Row of a product, and whether it stands in the backward pass, where the matrix is turned.
_Row = tuple[int, SparseProduct, bool]
# The shapes of what is multiplied.
_Factors = tuple[tuple[int, ...], tuple[int, ...]]


def sparse_rows(recorded: StepOps, known: Sequence[SparseProduct]) -> Iterator[_Row]:
    """The products with such a matrix within the steps, innermost ops."""
    if not known:
        return
    events = recorded.events
    backward = recorded.nesting.within(events.named(AUTOGRAD_NODE))
    rows = np.flatnonzero(events.exactly("aten::mm", "aten::addmm") & recorded.links.inside)
    forward: dict[_Factors, SparseProduct] = {((one.rows, one.columns), (one.columns, one.width)): one for one in known}
    turned: dict[_Factors, SparseProduct] = {((one.columns, one.rows), (one.rows, one.width)): one for one in known}
    for row in rows.tolist():
        dims = dims_of(events, row)
        first = 1 if events.text(row) == "aten::addmm" else 0
        factors = (sizes(dims, first), sizes(dims, first + 1))
        one = (turned if backward[row] else forward).get(factors)
        if one is not None:
            yield row, one, bool(backward[row])


def sparse_us(price: Price, found: list[_Row]) -> tuple[float, float] | None:
    """(least, most) that the sparse products take per step; None where one of them was not timed, or on a device."""
    each = [one.sparse_backward_us if backward else one.sparse_us for _, one, backward in found]
    known = [us for us in each if us is not None]
    if price.on_device or len(known) < len(each):
        return None
    sparse_us = sum(known) / price.ops.steps.count
    return sparse_us, _AROUND * sparse_us

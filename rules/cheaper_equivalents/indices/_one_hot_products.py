"""One-hot tensors that weights multiply."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import StepOps, dims_of, sizes

# Between the one-hot tensor and its product stand a conversion and at most a few views.
_NEAR = 6
_PRODUCTS = ("aten::linear", "aten::matmul", "aten::mm", "aten::addmm")
# Layers that multiply their input by weights in a product of all its steps.
_RECURRENT = ("aten::gru", "aten::lstm", "aten::rnn_tanh", "aten::rnn_relu")


class Product(Struct, frozen=True):
    """A one-hot tensor and what multiplies it.

    made       rows from the one-hot op to the last before the product
    product    its row
    recurrent  it is inside of a recurrent layer, whose weights are of one more size: an embedding takes their place in
               part
    """

    made: tuple[int, ...]
    product: int
    classes: int
    width: int
    vectors: int
    recurrent: bool = False


def one_hot_products(recorded: StepOps) -> list[Product]:
    """Each one-hot tensor that a weight multiplies."""
    events = recorded.events
    made = events.exactly("aten::one_hot")
    if not made.any():
        return []
    ops = recorded.outermost
    shapes = _made_shapes(recorded)
    found = []
    for at in np.flatnonzero(made[ops]).tolist():
        shape = shapes.get(int(ops[at]), ())
        for near in range(at + 1, min(at + 1 + _NEAR, len(ops))) if len(shape) > 1 else ():
            product = next(_products(recorded, int(ops[near]), shape), None)
            if product is not None:
                row, width = product
                before, vectors = tuple(ops[at:near].tolist()), math.prod(shape[:-1])
                found.append(Product(before, row, shape[-1], width, vectors, row != int(ops[near])))
                break
    return found


def _products(recorded: StepOps, row: int, shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """(row, width of the weights) of the product that an op is, or that a recurrent layer runs on its input."""
    events = recorded.events
    rows = [row] if events.text(row) in _PRODUCTS else []
    if events.text(row) in _RECURRENT:
        inside = events.exactly(*_PRODUCTS) & (recorded.nesting.ancestor(events.exactly(*_RECURRENT)) == row)
        rows = np.flatnonzero(inside).tolist()
    for one in rows:
        if width := _width(events.text(one), dims_of(events, one), shape):
            yield one, width


def _made_shapes(recorded: StepOps) -> dict[int, tuple[int, ...]]:
    """Row of a one_hot op -> shape of what it makes, read off the scatter inside it."""
    events = recorded.events
    scatter = events.exactly("aten::scatter_")
    owner = recorded.nesting.ancestor(events.exactly("aten::one_hot"))
    rows = np.flatnonzero(scatter & (owner >= 0))
    return {int(owner[row]): sizes(dims_of(events, int(row)), 0) for row in rows.tolist()}


def _width(op: str, dims: list[object], shape: tuple[int, ...]) -> int:
    """Width of the weights that the tensor of this shape is multiplied with; 0 where it is not the left factor."""
    first = 1 if op == "aten::addmm" else 0
    left, right = sizes(dims, first), sizes(dims, first + 1)
    if left[-1:] != shape[-1:] or math.prod(left) != math.prod(shape) or len(right) != 2:
        return 0
    if op == "aten::linear":
        return right[0] if right[1] == shape[-1] else 0
    return right[1] if right[0] == shape[-1] else 0

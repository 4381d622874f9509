"""One-hot tensors that weights multiply."""

from __future__ import annotations

import numpy as np

from advisor.api import StepOps, dims_of, sizes

# Between the one-hot tensor and its product stand a conversion and at most a few views.
_NEAR = 6
# (rows from the one-hot op to its product, classes, width of the weights, vectors)
Product = tuple[list[int], int, int, int]
_PRODUCTS = ("aten::linear", "aten::matmul", "aten::mm", "aten::addmm")


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
            row = int(ops[near])
            dims = dims_of(events, row)
            if events.text(row) in _PRODUCTS and (width := _width(events.text(row), dims, shape)):
                found.append((ops[at : near + 1].tolist(), shape[-1], width, int(np.prod(shape[:-1]))))
                break
    return found


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
    rows = int(np.prod(shape[:-1]))
    if left not in (shape, (rows, shape[-1])) or len(right) != 2:
        return 0
    if op == "aten::linear":
        return right[0] if right[1] == shape[-1] else 0
    return right[1] if right[0] == shape[-1] else 0

"""Weights that a step puts together of factors of low rank, and what a step without them does instead."""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from advisor.api import AUTOGRAD_NODE, GRADIENT_STORE, Category, Events, Ints, StepOps, dims_of, sizes

_PRODUCTS, _LAYERS = ("aten::matmul", "aten::mm"), ("aten::linear", "aten::matmul")
# The rank against the smaller side of the weight: with more the factors are hardly cheaper than the weight.
_THIN = 4
# Calls between the product and its layer: scaling, sums, transposes, casts.
_NEAR = 8
# What those read and write, and what scaling and sum do, in arrays as large as the layer's results and as its inputs.
# Forward: the second product writes one, scaling reads and writes one, the sum reads two and writes one; backward,
# scaling again, and two products read one. Of inputs: read by a product forward and one backward, written by another,
# and summed with the frozen layer's.
_RESULTS, _INPUTS = 10, 6


class Merged(Struct, frozen=True, eq=False):
    """A weight that is put together, and used by one layer.

    product      the row of the product of its factors;  rank: the inner size of that
    rows         all that goes: ops, nodes of the backward pass, the gradient of the weight
    layer        the layer's call, whose time tells what a product costs
    elementwise  what is done to the product
    products     operations of the factors' two products with the activations, as a share of the layer's
    activations  numbers that are read and written instead, as a share of those of the elementwise ops
    """

    product: int
    rank: int
    rows: Ints
    layer: Ints
    elementwise: Ints
    products: float
    activations: float


def merged(ops: StepOps) -> list[Merged]:
    """The weights that are put together of two factors of low rank."""
    events, steps = ops.events, ops.steps
    stores = np.flatnonzero(events.exactly(GRADIENT_STORE))
    stored = {sizes(dims_of(events, row), 0) for row in _first_of_shapes(events, stores)}
    thin = _thin(events, stored) if stored - {()} else set()
    if not thin:
        return []
    calls = events.of(Category.CPU_OP) & ops.nesting.outermost
    calls &= (events.thread == steps.main_thread) & (steps.step_of(events.start_ns) >= 0) & (events.sequence >= 0)
    rows = np.flatnonzero(calls & ~events.named(AUTOGRAD_NODE) & (events.forward_thread <= 0))
    nodes = np.flatnonzero(events.named(AUTOGRAD_NODE) & (events.sequence >= 0))
    found = []
    products = events.exactly(*_PRODUCTS)[rows] & np.isin(events.dims[rows], list(thin))
    for at in np.flatnonzero(products).tolist():
        left, right = (sizes(dims_of(events, int(rows[at])), of) for of in (0, 1))
        weight = (left[0], right[1])
        user = next((one for one in range(at + 1, min(at + _NEAR, len(rows))) if _uses(events, rows[one], weight)), 0)
        if user:
            found.append(_of(ops, rows, nodes, (at, user), (*weight, left[1])))
    return found


def _first_of_shapes(events: Events, rows: Ints) -> list[int]:
    """One row for each of the shapes that these rows have: steps repeat them."""
    return [int(row) for row in rows[np.unique(events.dims[rows], return_index=True)[1]]]


def _thin(events: Events, stored: set[tuple[int, ...]]) -> set[int]:
    """The shapes (index into the table) of products of two factors of low rank."""
    found = set()
    for row in _first_of_shapes(events, np.flatnonzero(events.exactly(*_PRODUCTS))):
        left, right = (sizes(dims_of(events, row), of) for of in (0, 1))
        if len(left) == 2 and len(right) == 2 and _is_thin(left, right, stored):
            found.add(int(events.dims[row]))
    return found


def _is_thin(left: tuple[int, ...], right: tuple[int, ...], stored: set[tuple[int, ...]]) -> bool:
    """Whether two matrices are factors of low rank, both of them trained, and nothing of their product's size is."""
    whole = (left[0], right[1])
    if left[1] != right[0] or left[1] * _THIN > min(whole) or {whole, whole[::-1]} & stored:
        return False
    return all({one, one[::-1]} & stored for one in (left, right))


def _uses(events: Events, row: int, weight: tuple[int, int]) -> bool:
    """Whether a call is a layer with that weight."""
    if events.text(row) not in _LAYERS:
        return False
    dims = dims_of(events, row)
    inner = weight[1] if events.text(row) == "aten::linear" else weight[0]
    return sizes(dims, 1) == weight and sizes(dims, 0)[-1:] == (inner,)


def _of(recorded: StepOps, rows: Ints, nodes: Ints, between: tuple[int, int], form: tuple[int, int, int]) -> Merged:
    events, parent = recorded.events, recorded.nesting.parent
    at, user = between
    a, b, rank = form
    ops, layer = rows[at:user], int(rows[user])
    number = events.sequence[nodes]
    after = int(events.sequence[rows[user + 1]]) if user + 1 < len(rows) else int(events.sequence[layer]) + 1
    behind = nodes[(number >= events.sequence[ops[0]]) & (number < events.sequence[layer])]
    own = nodes[(number >= events.sequence[layer]) & (number < after)]
    inside = np.append(own, np.flatnonzero(np.isin(parent, own)))
    products = np.flatnonzero(events.exactly("aten::mm") & np.isin(parent, inside))
    gradient = [row for row in products.tolist() if _product(events, row) in {(a, b), (b, a)}]
    batch = math.prod(sizes(dims_of(events, layer), 0)[:-1])
    return Merged(
        product=int(ops[0]),
        rank=rank,
        rows=np.concatenate((ops, behind, np.array(gradient, np.int64))),
        layer=rows[user : user + 1],
        elementwise=ops[1:],
        products=rank * (a + b) / (a * b),
        activations=batch * (_RESULTS * a + _INPUTS * b) / (a * b * max(_arrays(events, ops[1:], (a, b)), 1)),
    )


def _arrays(events: Events, ops: Ints, whole: tuple[int, int]) -> int:
    """How many arrays of the weight's size these ops read and write."""
    forms = [dims_of(events, row) for row in ops.tolist()]
    read = [sum(sizes(dims, at) == whole for at in range(len(dims))) for dims in forms]
    return sum(one + 1 for one in read if one)


def _product(events: Events, row: int) -> tuple[int, ...]:
    """The shape of what a product of two matrices makes."""
    dims = dims_of(events, row)
    return sizes(dims, 0)[:1] + sizes(dims, 1)[-1:]

"""Low-rank factors are merged into a weight in every forward pass.

## What it looks at
Products of two trained parameters, `[out, rank]` and `[rank, in]` with a small rank, whose result becomes the weight of
a layer in the same forward pass, while no weight of that size is trained: an adapter (LoRA) that is merged into its
frozen layer, or a low-rank layer whose full weight is materialized. Counted are the product and the ops on its result
before the layer, their part of the backward pass, and the gradient of the full weight that the layer computes.

## Why it costs time
The product writes a matrix as large as the layer's weight, and so do the scaling and the sum; in the backward pass the
gradient of that matrix costs as much as the layer itself did, and all of it is reduced to the gradients of two thin
factors. Applied to the activations one after the other, the factors need none of these.

## How to fix it
`base(x) + scale * F.linear(F.linear(x, down), up)`. Merge once, after the training.

## When to leave it
Where the layer gets far more rows than its weight has. Results differ in their last digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    Category,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    StepOps,
    backward_passes,
    dataclass,
    dims_of,
    draw,
    sizes,
)

from ..shared._words import plural
from ._equivalent import Equivalent, Ints, rows_of, worth

CONFIRMED = "measured pair on a CPU: adapters of rank 8 in a language model, merged in each pass and kept as factors"

_PRODUCTS, _LAYERS = ("aten::matmul", "aten::mm"), ("aten::linear", "aten::matmul")
# The rank against the smaller side of the weight: with more the factors are hardly cheaper than the weight.
_THIN = 4
# Calls between the product and its layer: scaling, sums, transposes, casts.
_NEAR = 8
# Products of the activations with the factors come instead: forward, and for both gradients in the backward pass.
_INSTEAD = 3
# What those read and write, and what scaling and sum do, in arrays as large as the layer's results and as its inputs.
# Forward: the second product writes one, scaling reads and writes one, the sum reads two and writes one; backward,
# scaling again, and two products read one. Of inputs: read by a product forward and one backward, written by another,
# and summed with the frozen layer's.
_RESULTS, _INPUTS = 10, 6


_HOW = (
    "without merged weights and their gradients, minus the products with the factors; low: also minus what those read "
    "and write at the rate of the merged weights, high: which stays in the caches"
)
_FIX = Fix(
    "Apply the factors to the activations instead of merging them",
    "numerics",
    "weight = base.weight + scale * (up @ down)\ny = F.linear(x, weight, base.bias)",
    "y = base(x) + scale * F.linear(F.linear(x, down), up)",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a forward method to change: not worth it below 3 % of the step
) -> Iterator[Finding]:
    found = _merged(price.ops)
    if not found:
        return
    rows = np.unique(np.concatenate([one.rows for one in found]))
    # What comes instead: at the layers' own rate for operations, and at that of the elementwise ops for what is read
    # and written.
    products = [(one.layer, *2 * (-_INSTEAD * one.products,)) for one in found]
    activations = [(one.elementwise, -one.activations, 0.0) for one in found]
    one = Equivalent(
        parts=((rows, 1.0, 1.0), *products, *activations),
        how=_HOW,
        ops="long",
        spent_us=price.spent_us(rows),
        shown=rows_of(*(one.product for one in found)),
    )
    known = worth(price, lines, one, min_share)
    if known and known.saving and known.saving.low_us:
        weights = len(found) / price.ops.steps.count
        yield known.finding(
            f"A step computes {plural(weights, 'full weight')}{known.at} from factors of rank "
            f"{found[0].rank}: with the gradients that takes {known.spent}.",
            {"weights": weights, "rank": found[0].rank, "merged_us": known.spent_us},
            _FIX,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Merged:
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


def _merged(ops: StepOps) -> list[_Merged]:
    events, steps = ops.events, ops.steps
    stores = np.flatnonzero(events.exactly(backward_passes.STORES))
    stored = {sizes(dims_of(events, row), 0) for row in _first_of_shapes(events, stores)}
    thin = _thin(events, stored) if stored - {()} else set()
    if not thin:
        return []
    calls = events.of(Category.CPU_OP) & ops.nesting.outermost
    calls &= (events.thread == steps.main_thread) & (steps.step_of(events.start_ns) >= 0) & (events.sequence >= 0)
    rows = np.flatnonzero(calls & ~events.named(backward_passes.NODE) & (events.forward_thread <= 0))
    nodes = np.flatnonzero(events.named(backward_passes.NODE) & (events.sequence >= 0))
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


def _of(recorded: StepOps, rows: Ints, nodes: Ints, between: tuple[int, int], form: tuple[int, int, int]) -> _Merged:
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
    return _Merged(
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


_LINEAR, _FACTORS = [[64, 384], [512, 384]], [[512, 8], [8, 384]]


def _op(name: str, number: int, dims: list[list[int]]) -> Ev:
    return Ev(name, dims=dims, args={"Sequence number": number, "Fwd thread id": 0})


def _node(name: str, number: int) -> Ev:
    return Ev(f"{backward_passes.NODE}: {name}", args={"Sequence number": number, "Fwd thread id": 1})


def _stored(*shape: int) -> Ev:
    return Ev(backward_passes.STORES, dims=[list(shape)], launches="")


_STEPS = """
   step [1                                                     ][2                                                     ]
   cpu  [P ][M ][A ][L     ][R ][Z][Y         ][X][W ][V ][S][T][p ][m ][a ][l     ][r ][z][y         ][x][w ][v ][S][T]
   cpu                              [G   ][H  ]                                             [G   ][H  ]
    """


def _drawn(factors: list[list[int]] = _FACTORS, base: Ev | None = None) -> Any:
    """An adapter that is merged; factors: of the product; base: what is stored beside the gradients of the factors."""
    rows: dict[str, Any] = {}
    for names, first in (("PMALRZYXWV", 1), ("pmalrzyxwv", 11)):
        forward = ("aten::matmul", "aten::mul", "aten::add", "aten::linear", "aten::relu")
        dims = (factors, [[512, 384]], [[512, 384], [512, 384]], _LINEAR, [[64, 512]])
        rows |= {
            name: _op(op, first + at, size)
            for at, (name, op, size) in enumerate(zip(names, forward, dims, strict=False))
        }
        backward = ("ReluBackward0", "AddmmBackward0", "AddBackward0", "MulBackward0", "MmBackward0")
        rows |= {name: _node(op, first + 4 - at) for at, (name, op) in enumerate(zip(names[5:], backward, strict=True))}
    rows |= {"G": Ev("aten::mm", dims=[[64, 512], [512, 384]]), "H": Ev("aten::mm", dims=[[512, 64], [64, 384]])}
    rows |= {"S": base or _stored(512, 8), "T": _stored(8, 384)}
    return draw(_STEPS, us=100, **rows)


EXAMPLES = [
    Example(
        "an adapter is merged with its layer in each pass",
        _drawn(),
        saves_us=(1500, 3300),
        says=("1 full weight", "rank 8"),
    ),
    Example(
        "factors as wide as the weight",
        _drawn([[512, 256], [256, 384]], _stored(512, 256)),
        saves_us=None,
        near_miss=True,
    ),
    Example("the factors are activations, of which no gradient is stored", _drawn(base=_stored(512)), saves_us=None),
]

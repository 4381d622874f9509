"""One tensor is stacked with itself for a product.

## What it looks at
`torch.stack([weight] * samples)` or `torch.cat` of one tensor with itself, and the matrix product that reads the result
directly after it. That all are one tensor is seen in the backward pass: autograd adds up a gradient for each of them.

## Why it costs time
Every copy of the weight is written, read by the product, and gets a gradient of its own, which are then added up one by
one. The product is a batch of as many small ones, each with a weight of its own, although the samples could be the
columns of one product.

## How to fix it
`torch.einsum("noij,bnj->bnoi", weight, x)` multiplies without copies. `weight.expand(samples, ...)` copies nothing by
itself, but a batched product that reads it does.

## When to leave it
Where the copies are changed before they are multiplied. Results differ in the last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    Drawing,
    Events,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Price,
    Source,
    dims_of,
    nodes_of,
    sizes,
    with_nodes,
)

from ...shared._examples import node, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, rows_of, worth

_JOINS = ("aten::stack", "aten::cat")
_PRODUCTS = frozenset(("aten::matmul", "aten::bmm", "aten::baddbmm", "aten::einsum"))
_ADDS = ("aten::add", "aten::add_")
# Fewer copies are views of one sample, or heads.
_COPIES = 4
# Between the copies and their product: views of either operand.
_NEAR = 8
_HOW = "low: the copies and their gradients; high: the product and its backward pass as well, whose copies are read"
_FIX = Fix(
    "Multiply the samples by one tensor, without copies",
    "numerics",
    "weight = torch.stack([self.weight] * len(x))\ny = torch.matmul(weight, x[:, :, None, :, None]).squeeze(-1)",
    'y = torch.einsum("noij,bnj->bnoi", self.weight, x)',
)
Shape = tuple[int, ...]


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # one line to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, outer = price.ops.events, price.ops.outermost
    joins, products, copies = [], [], 0
    # Joins of one kind at one line are alike: the first of them is looked at.
    one_tensor: dict[tuple[int, Shape, Source | None], bool] = {}
    for at in np.flatnonzero(events.exactly(*_JOINS)[outer]).tolist():
        row = int(outer[at])
        number, shape = _alike(events, row)
        product = _product(events, outer[at + 1 : at + 1 + _NEAR], number, shape) if number >= _COPIES else None
        if product is None:
            continue
        kind = (number, shape, lines.where_op(row) if lines else None)
        if kind not in one_tensor:
            one_tensor[kind] = _is_one_tensor(price, row, shape, number)
        if one_tensor[kind]:
            joins.append(row)
            products.append(product)
            copies = max(copies, number)
    if not joins:
        return
    parts = tuple(
        (with_nodes(events, outer, rows_of(*rows)), least, 1.0) for rows, least in ((joins, 1.0), (products, 0.0))
    )
    one = Equivalent(parts=parts, how=_HOW, ops="long", timed_on_device=False, shown=rows_of(*joins))
    if known := worth(price, lines, one, min_share):
        yield known.finding(
            f"A tensor is joined with itself, {count(copies)} times{known.at}, to be multiplied: the copies and the "
            f"product take {known.spent}, backward pass included.",
            {"joins": len(joins) / price.ops.steps.count, "copies": copies, "spent_us": known.spent_us},
            _FIX,
        )


def _alike(events: Events, row: int) -> tuple[int, Shape]:
    """(how many tensors an op joins, their shape); (0, ()) where they are not of one shape."""
    dims = dims_of(events, row)
    given = dims[0] if dims and isinstance(dims[0], list) else []
    shapes = {sizes(given, at) for at in range(len(given))}
    return (len(given), shapes.pop()) if len(shapes) == 1 else (0, ())


def _is_one_tensor(price: Price, row: int, shape: Shape, number: int) -> bool:
    """Whether a gradient for each of the joined tensors is added to those of the others."""
    events, nesting = price.ops.events, price.ops.nesting
    nodes = nodes_of(events, price.ops.outermost, rows_of(row))
    of_join = np.zeros(len(events), bool)
    of_join[nodes[events.named(AUTOGRAD_NODE)[nodes]]] = True
    adds = np.flatnonzero(events.exactly(*_ADDS))
    adds = adds[nesting.ancestor_of(adds, of_join) >= 0]
    return sum(sizes(dims_of(events, add), 0) == shape for add in adds.tolist()) >= number - 1


def _product(events: Events, following: Ints, number: int, shape: Shape) -> int | None:
    """The product among the next ops that reads as many numbers as were joined, as its largest operand."""
    for row in following.tolist():
        if events.text(row) in _PRODUCTS:
            dims = dims_of(events, row)
            given = dims[0] if events.text(row) == "aten::einsum" and len(dims) and isinstance(dims[0], list) else dims
            read = [sizes(given, at) for at in range(min(len(given), 3))]
            return row if any(_numbers(one) == number * _numbers(shape) for one in read) else None
    return None


def _numbers(shape: Shape) -> int:
    return int(np.prod(shape)) if shape else 0


def _drawn(*, adds: int = 7, product: str = "matmul") -> Drawing:
    """A layer, eight copies of a weight, their product with the samples, and the backward pass of all."""
    added: dict[str, Any] = {"a": op("add_", [24, 32, 32], [24, 32, 32])} if adds else {}
    return two_steps(
        "[F][S   ][P       ][Q          ][T                          ][B ]",
        *(["                                " + "[a]" * adds] if adds else ()),
        S=op("stack", [[24, 32, 32]] * 8, [], number=6),
        P=op(product, [8, 24, 32, 32], [8, 24, 32, 1], number=7),
        Q=node(7, "UnsafeViewBackward0"),
        T=node(6, "StackBackward0"),
        **added,
    )


EXAMPLES = [
    Example(
        "a weight is copied for each sample", _drawn(), saves_us=(2500, 6000), says=("joined with itself, 8 times",)
    ),
    Example("eight weights of their own: no gradient is added to another", _drawn(adds=0)),
    Example("copies that no product reads", _drawn(product="mul"), near_miss=True),
    Example("some of them are one tensor", _drawn(adds=3), near_miss=True),
]

"""Three matrices are multiplied in the order that takes more operations.

## What it looks at
Products of matrices (`@`, `mm`, `bmm`, linear layers without a bias) whose result is read by one other product alone,
also if it is multiplied by a number in between. Their shapes say how many operations both orders take. `advisor run`
observes in one step what reads a tensor. A softmax, an activation or a mask between the two rules it out.

## Why it costs time
`(a @ b) @ c` and `a @ (b @ c)` are the same matrix, at different costs: for 2,000 positions of width 64, scores of all
pairs of positions and their product with the values take 512 million multiplications, `k.T @ v` first takes 16 million.
In a graph network, neighbors are added up in as many columns as the features have, or, if the layer comes first, in as
many as its output has. The backward pass repeats the difference twice, and the intermediate result is stored for it.

## How to fix it
Set the parentheses around the product with the smaller result: `q @ (k.transpose(-2, -1) @ v)`, `adjacency @ layer(x)`.
`torch.linalg.multi_dot` chooses the order for any number of matrices.

## When to leave it
Where the first result is needed itself, and in tests that compare results to the last digit: sums are computed in
another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from advisor.api import Drawing, Events, Example, Finding, Fix, Ints, Lines, Price, Readers, dims_of, sizes, with_nodes

from ...shared._examples import node, observed, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, rows_of, worth

Shape = tuple[int, ...]
_PRODUCTS = frozenset(f"aten::{name}" for name in ("mm", "bmm", "matmul", "mv", "linear", "_sparse_mm"))
_SCALED = frozenset(("aten::mul", "aten::div", "aten::mul_", "aten::div_"))
_HOW = (
    "these products and their backward pass in proportion to the operations of the other order; low: products of "
    "those shapes take twice as long for each operation"
)
_FIX = Fix(
    "Multiply in the other order",
    "numerics",
    "y = (q @ k.transpose(-2, -1)) @ v\ny = layer(adjacency @ x)",
    "y = q @ (k.transpose(-2, -1) @ v)\ny = adjacency @ layer(x)",
)


class Product(Struct, frozen=True):
    """A product. left, right: as they are multiplied; result: of them."""

    row: int
    left: Shape
    right: Shape
    result: Shape
    operations: int


class Order(Struct, frozen=True):
    """Two products one after the other, and what the other order leaves of the operations of each."""

    first: Product
    second: Product
    left_of_first: float
    left_of_second: float

    @property
    def fewer(self) -> float:
        """How many times as few operations the other order takes."""
        first, second = self.first.operations, self.second.operations
        return (first + second) / (first * self.left_of_first + second * self.left_of_second)


def check(
    price: Price,
    lines: Lines | None,
    readers: Readers,
    *,
    min_share: float = 0.03,  # parentheses to move; below 3 % of the step the gain is within the noise between steps
    min_fewer: float = 2.0,  # times as few operations: products of other shapes may take twice as long for each
) -> Iterator[Finding]:
    events, ops, steps = price.ops.events, price.ops.outermost, price.ops.steps.count
    orders = (_order(events, readers, row) for row in price.ops.outermost_named(*_PRODUCTS).tolist())
    found = [order for order in orders if order is not None and order.fewer >= min_fewer]
    if not found:
        return
    one = Equivalent(
        parts=tuple(part for each in found for part in _parts(events, ops, each)),
        how=_HOW,
        shown=rows_of(*(each.second.row for each in found)),
        timed_on_device=False,
    )
    if known := worth(price, lines, one, min_share):
        largest = max(found, key=lambda one: one.first.operations + one.second.operations)
        yield known.finding(
            f"A product of {_text(largest.first.left)} and {_text(largest.first.right)} is only multiplied further"
            f"{known.at}; the other order takes {count(round(largest.fewer, 1))} times as few operations: "
            f"{known.spent}, backward pass included.",
            {"products": len(found) / steps, "fewer": largest.fewer, "spent_us": known.spent_us},
            _FIX,
        )


def _order(events: Events, readers: Readers, row: int) -> Order | None:
    """The product in this row with the one that alone reads its result."""
    first = _product(events, row, alone=True)
    behind = readers.of(row) if first is not None else []
    if len(behind) == 1 and events.text(behind[0]) in _SCALED and _by_number(events, behind[0]):
        behind = readers.of(behind[0])
    second = _product(events, behind[0]) if len(behind) == 1 and events.text(behind[0]) in _PRODUCTS else None
    if first is None or second is None or first.row == second.row:
        return None
    ways = []
    if second.left == first.result:  # (a b) c as a (b c)
        inner = multiplied(first.right, second.right)
        ways.append((_left(multiplied(first.left, inner[0]), first), _left(inner, second)) if inner else None)
    if second.right == first.result:  # c (a b) as (c a) b
        inner = multiplied(second.left, first.left)
        ways.append((_left(multiplied(inner[0], first.right), first), _left(inner, second)) if inner else None)
    known = [Order(first, second, *way) for way in ways if way is not None]
    return min(known, key=lambda one: one.fewer) if known and len(known) == len(ways) else None


def _left(made: tuple[Shape, int] | None, instead: Product) -> float:
    return made[1] / instead.operations if made else math.inf


def _by_number(events: Events, row: int) -> bool:
    dims = dims_of(events, row)
    return math.prod(sizes(dims, 1)) == 1 or math.prod(sizes(dims, 0)) == 1


def _product(events: Events, row: int, *, alone: bool = False) -> Product | None:
    """The product in this row. alone: none that adds a bias."""
    dims = dims_of(events, row)
    left, right = sizes(dims, 0), sizes(dims, 1)
    if events.text(row) == "aten::linear":
        if alone and sizes(dims, 2):
            return None
        right = right[::-1]
    made = multiplied(left, right) if min(len(left), len(right)) > 0 and len(left) > 1 else None
    return Product(row, left, right, *made) if made and made[1] else None


def multiplied(left: Shape, right: Shape) -> tuple[Shape, int] | None:
    """Shape of a product of matrices or batches of them, and its multiplications; None where they do not fit."""
    vector = len(right) == 1
    right = (*right, 1) if vector else right
    if len(left) < 2 or left[-1] != right[-2]:
        return None
    try:
        batch = np.broadcast_shapes(left[:-2], right[:-2])
    except ValueError:
        return None
    result = (*map(int, batch), left[-2]) if vector else (*map(int, batch), left[-2], right[-1])
    return result, math.prod(batch) * left[-2] * left[-1] * right[-1]


def _parts(events: Events, ops: Ints, one: Order) -> Iterator[tuple[Ints, float, float]]:
    for product, left in ((one.first, one.left_of_first), (one.second, one.left_of_second)):
        most = 1 - left
        # What has as many operations as before is the same product on other numbers.
        yield with_nodes(events, ops, rows_of(product.row)), max(1 - 2 * left, min(most, 0.0)), most


def _text(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"


_CHAIN: list[list[int]] = [[], [1], [1], [1]]
_LANES = "[F][P       ][Q       ][L][X][Y         ][Z         ][O]"
_QUERIES, _KEYS, _VALUES = [8, 2000, 64], [8, 64, 2000], [8, 2000, 64]
_SCORES = [8, 2000, 2000]
_SEEN = observed("linear matmul matmul sum", _CHAIN)


def _drawn(lanes: str = _LANES, **ops: Any) -> Drawing:
    """A layer (F), two products (P, Q), a sum (L), and the nodes of the three."""
    known: dict[str, Any] = {
        "P": op("matmul", _QUERIES, _KEYS, number=1),
        "Q": op("matmul", _SCORES, _VALUES, number=2),
        "L": op("sum", _QUERIES, number=3),
        "X": node(3, "SumBackward0"),
        "Y": node(2, "BmmBackward0"),
        "Z": node(1, "BmmBackward0"),
    }
    return two_steps(lanes, **(known | ops))


_ADJACENCY, _FEATURES = [3000, 3000], [3000, 500]
_GRAPH: dict[str, Any] = {"P": op("matmul", _ADJACENCY, _FEATURES, number=1)}

EXAMPLES = [
    Example(
        "attention without a softmax, all pairs of positions first",
        _drawn(),
        saves_us=(3600, 4600),
        facts=_SEEN,
        says=("[8, 2000, 64] and [8, 64, 2000]", "31 times as few"),
    ),
    Example(
        "neighbors are added up in 500 columns, before a layer to 16",
        _drawn(Q=op("linear", _FEATURES, [16, 500], [16], number=2), **_GRAPH),
        saves_us=(1500, 2600),
        facts=observed("linear matmul linear sum", _CHAIN),
        says=("[3000, 3000] and [3000, 500]",),
    ),
    Example(
        "scores that are divided by a number",
        _drawn("[F][P       ][D][Q       ][L][X][Y         ][Z         ][O]", D=op("div", _SCORES, [])),
        saves_us=(3600, 4600),
        facts=observed("linear matmul div matmul sum", [[], [1], [1], [1], [1]]),
    ),
    Example(
        "a softmax stands between",
        _drawn("[F][P       ][D][Q       ][L][X][Y         ][Z         ][O]", D=op("softmax", _SCORES, [], [])),
        facts=observed("linear matmul softmax matmul sum", [[], [1], [1], [1], [1]]),
        near_miss=True,
    ),
    Example(
        "the scores are read once more",
        _drawn(),
        facts=observed("linear matmul matmul sum", [[], [1], [1], [1, 2]]),
        near_miss=True,
    ),
    Example(
        "a layer to more columns than the features have",
        _drawn(Q=op("linear", _FEATURES, [900, 500], [900], number=2), **_GRAPH),
        facts=observed("linear matmul linear sum", _CHAIN),
        near_miss=True,
    ),
    Example(
        "keys and values first",
        _drawn(P=op("matmul", _KEYS, _VALUES, number=1), Q=op("matmul", _QUERIES, [8, 64, 64], number=2)),
        facts=_SEEN,
    ),
]

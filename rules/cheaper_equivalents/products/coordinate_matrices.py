"""A constant sparse matrix is made in coordinate form in each step.

## What it looks at
On a CPU, products with sparse matrices that the step makes with `torch.sparse_coo_tensor` of indices and weights that
never change: the adjacency of a graph, made in each forward pass or layer. Which tensors change, `advisor run`
observes.

## Why it costs time
A product with a matrix in coordinate form (COO) goes through its numbers one by one; it may be sorted first
(`coalesce`), again in each step. The compressed form (CSR) knows where each row begins, and each row is summed by
itself: with 1,000 rows of 4 and 30 numbers a product took 6 % to 30 % of the time (16 and 48 columns, one thread). Its
backward pass converts the matrix each time and took about twice as long there, so measure a training step with both.

## How to fix it
Build it once, before the loop: `torch.sparse_coo_tensor(...).coalesce().to_sparse_csr()`. `torch.sparse.mm` takes both,
also in the backward pass for a dense right side.

## When to leave it
Where the weights are trained, or the graph is another in each batch. Sums come in another order, so results differ in
the last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import Drawing, Example, Finding, Fix, Ints, Lines, ObservedOps, Price, nodes_of

from ...shared._examples import node, observed, op, two_steps
from ...shared._words import plural
from .._equivalent import Equivalent, whole, worth

_FIX = Fix(
    "Build the matrix once, in compressed form",
    "numerics",
    "def forward(self, x):\n    matrix = torch.sparse_coo_tensor(self.indices, self.weights, self.shape)\n"
    "    return torch.sparse.mm(matrix, x)",
    "def __init__(self):\n    matrix = torch.sparse_coo_tensor(indices, weights, shape)\n"
    "    self.matrix = matrix.coalesce().to_sparse_csr()\n\n"
    "def forward(self, x):\n    return torch.sparse.mm(self.matrix, x)",
)


def check(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # the matrix moves to another place of the script: not worth it below 5 % of the step
) -> Iterator[Finding]:
    made, products = _rows(seen)
    if not len(products) or price.on_device:
        return
    backward = nodes_of(price.ops.events, price.ops.outermost, products)
    one = Equivalent(
        parts=whole(np.union1d(np.union1d(made, products), backward)),
        how="",
        instead_us=None,  # the backward pass of a compressed matrix takes longer on some machines: not measured here
        shown=made,
        at_most="low",
    )
    if known := worth(price, lines, one, min_share):
        each = len(products) / price.ops.steps.count
        filled = max(filled for *_, filled in seen.seen.coordinates)
        yield known.finding(
            f"{plural(each, 'product')} per step with a constant sparse matrix that is made in coordinate form each "
            f"time{known.at}, of up to {filled:,} numbers: {known.spent} with their backward pass. What it takes in "
            "compressed form was not measured: try it.",
            {"products": each, "sparse_us": known.spent_us, "filled": filled},
            _FIX,
        )


def _rows(seen: ObservedOps) -> tuple[Ints, Ints]:
    """(what makes and sorts the matrices, the products with them) in all profiled steps."""
    made: set[int] = set()
    products: set[int] = set()
    for at in seen.places:
        for makes, between, product, _ in seen.seen.coordinates:
            made |= {int(at[one]) for one in (makes, *between)}
            products.add(int(at[product]))
    return np.array(sorted(made - {-1}), np.int64), np.array(sorted(products - {-1}), np.int64)


_NAMES = "linear sparse_coo_tensor coalesce _sparse_mm"


def _drawn() -> Drawing:
    """A layer (F), a matrix that is made (C) and sorted (S), the product (P), and the nodes of both (N, B)."""
    return two_steps(
        "[F   ][C][S     ][P        ][N           ][B   ]",
        F=op("linear", [500, 64], [64, 64], [64], number=3),
        C=op("sparse_coo_tensor", [2, 9000], [9000]),
        S=op("coalesce", [500, 500]),
        P=op("_sparse_mm", [500, 500], [500, 64], number=4),
        N=node(4, "SparseAddmmBackward0"),
        B=node(3),
    )


_MADE: dict[str, Any] = {"coordinates": [(1, [2], 3, 9000)]}

EXAMPLES = [
    Example(
        "the adjacency of a graph, made in each forward pass",
        _drawn(),
        saves_us="unknown",
        facts=observed(_NAMES, [[], [], [], []], **_MADE),
        says=("1 product per step", "9,000 numbers"),
    ),
    Example(
        "a matrix of this batch's graph",
        _drawn(),
        facts=observed(_NAMES, [[], [], [], []], coordinates=[]),
        near_miss=True,
    ),
    Example(
        "a matrix that was made before the loop",
        two_steps("[F   ][P        ][B   ]", P=op("_sparse_mm", [500, 500], [500, 64])),
        facts=observed("linear _sparse_mm", [[], []]),
    ),
]

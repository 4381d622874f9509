"""A matrix is inverted only to be multiplied.

## What it looks at
`torch.inverse` and `torch.linalg.inv` whose result nothing but products read, with these products and the backward pass
of both. Which ops read a result, `advisor run` observes.

## Why it costs time
`torch.linalg.solve` needs a third of the inverse's multiplications, and gets the product without it. The difference is
larger in the backward pass: that of the inverse multiplies two more matrices of full size, that of a solution solves
once more with the factors that it kept.

## How to fix it
`torch.linalg.solve(matrix, right)` in place of `torch.inverse(matrix) @ right`, and `solve(matrix, right, left=False)`
in place of `right @ torch.inverse(matrix)`. It is also more accurate. Where a quadratic form `r @ inverse @ r` is
needed beside the determinant, as in a Gaussian likelihood, one Cholesky factor serves both:
`L = torch.linalg.cholesky(matrix)`, the square of `torch.linalg.solve_triangular(L, r, upper=False)`, and
`2 * L.diagonal().log().sum()`. `torch.cholesky_solve` is no help in training: its backward pass inverts the matrix.

## When to leave it
Where one inverse is multiplied in many places, or kept for many steps. Results differ in the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    Drawing,
    Events,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    Readers,
    constant,
    dims_of,
    sizes,
    with_backward,
)

from ...shared._examples import node, observed, op, two_steps
from ...shared._words import often
from .._equivalent import Equivalent, worth

_INVERSES = ("aten::inverse", "aten::linalg_inv", "aten::linalg_inv_ex")
_PRODUCTS = frozenset(f"aten::{name}" for name in ("matmul", "mm", "bmm", "mv", "addmm", "baddbmm", "addmv"))
# Measured apart: few columns and many rows gain more.
_FEW_COLUMNS, _MANY_ROWS = 1 / 8, 200
_SAVED_OF_FEW, _SAVED = constant("share.inverse_few_columns").range, constant("share.inverse").range
_HOW = "the share of inverses, products and their backward pass that torch.linalg.solve saved in measurements on a CPU"
_FIX = Fix(
    "Use `torch.linalg.solve` in place of the inverse",
    "numerics",
    "x = torch.inverse(matrix) @ right",
    "x = torch.linalg.solve(matrix, right)  # right @ inverse: solve(matrix, right, left=False)",
)


def check(
    price: Price,
    readers: Readers,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one call to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events = price.ops.events
    parts, shown, largest = [], [], 0
    for row in price.ops.outermost_named(*_INVERSES).tolist():
        products = readers.of(row)
        shape = sizes(dims_of(events, row), 0)
        if not shape or not products or any(events.text(one) not in _PRODUCTS for one in products):
            continue
        mine = np.array([row, *products], np.int64)
        few = shape[-1] >= _MANY_ROWS and _columns(events, products, shape) <= _FEW_COLUMNS * shape[-1]
        parts.append((with_backward(events, mine), *(_SAVED_OF_FEW if few else _SAVED)))
        shown.append(row)
        largest = max(largest, shape[-1])
    if not parts:
        return
    one = Equivalent(parts=tuple(parts), how=_HOW, shown=np.array(shown, np.int64), timed_on_device=False)
    if known := worth(price, lines, one, min_share):
        calls = len(shown) / price.ops.steps.count
        yield known.finding(
            f"A matrix of up to {largest:,} rows is inverted{known.at}, {often(calls)}, only to be multiplied: "
            f"{known.spent} with the products and their backward pass.",
            {"inverses": calls, "rows": largest, "spent_us": known.spent_us},
            _FIX,
        )


def _columns(events: Events, products: list[int], shape: tuple[int, ...]) -> float:
    """The most columns that a product multiplies the inverse with."""
    most = 0.0
    for row in products:
        others = [one for at in range(2) if (one := sizes(dims_of(events, row), at)) and one != shape]
        most = max([most, *(math.prod(one) / shape[-1] / math.prod(shape[:-2]) for one in others)])
        if not others:
            most = max(most, float(shape[-1]))
    return most


_NAMES = "linear inverse matmul sum"
_WAITS: list[list[int]] = [[], [1], [1], [1]]


def _drawn(**ops: Any) -> Drawing:
    """A layer (F), the inverse (I), the product (P), a sum (S), and their nodes."""
    known = {
        "I": op("inverse", [500, 500], number=1),
        "P": op("matmul", [500, 500], [500, 1], number=2),
        "S": op("sum", [500, 1], number=3),
        "X": node(2, "MmBackward0"),
        "Y": node(1, "LinalgInvExBackward0"),
    }
    return two_steps("[F  ][I     ][P][S][X][Y           ][B  ][O ]", **(known | ops))


EXAMPLES = [
    Example(
        "an inverse that is multiplied by one column",
        _drawn(),
        saves_us=(450, 2250),
        facts=observed(_NAMES, _WAITS),
        says=("A matrix of up to 500 rows is inverted", "only to be multiplied"),
    ),
    Example(
        "by as many columns as it has rows",
        _drawn(P=op("matmul", [500, 500], [500, 500], number=2)),
        saves_us=(80, 1600),
        facts=observed(_NAMES, _WAITS),
    ),
    Example("the inverse is summed, too", _drawn(), facts=observed(_NAMES, [[], [1], [1], [2, 1]]), near_miss=True),
    Example(
        "torch.linalg.solve",
        _drawn(I=op("linalg_solve", [500, 500], [500, 1], number=1)),
        facts=observed("linear linalg_solve matmul sum", _WAITS),
    ),
]

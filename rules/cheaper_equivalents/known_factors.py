"""A product of a triangle with its transpose is factorized again.

## What it looks at
`torch.linalg.cholesky` of a matrix that is the product of a matrix and its own transpose and that nothing else reads,
with that product and the backward pass of both. Which ops read a result, `advisor run` observes.

## Why it costs time
The Cholesky factor of `L @ L.mT` is `L`, if that is lower triangular with a positive diagonal. Multiplying and
factorizing take the cube of its size in multiplications each; the backward pass of the factorization solves with the
factor twice more.

## How to fix it
Use the factor itself. `torch.distributions.MultivariateNormal(mean, scale_tril=L)` takes it in place of
`covariance_matrix=L @ L.mT`, which it would factorize; its `covariance_matrix` is there all the same.

## When to leave it
A left factor that is not lower triangular: the factor of the product is another matrix then. Small values that are
added to the diagonal of the product (`+ eps * torch.eye(n)`) make another matrix of it, and nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    Drawing,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    Readers,
    dims_of,
    sizes,
    with_backward,
)

from ..shared._examples import node, observed, op, two_steps
from ..shared._words import often
from ._equivalent import Equivalent, worth

_FACTORS = ("aten::linalg_cholesky", "aten::linalg_cholesky_ex", "aten::cholesky")
_PRODUCTS = ("aten::matmul", "aten::mm", "aten::bmm")
_TRANSPOSES = tuple(f"aten::{name}" for name in ("transpose", "t", "mT", "numpy_T", "adjoint", "swapaxes", "permute"))
# A lower triangle, and a diagonal that is added to it.
_TRIANGLE, _SUM = "aten::tril", "aten::add"
_TRIANGULAR = {_TRIANGLE, "aten::diag_embed"}
_HOW = (
    "low: nothing, if the matrix is not lower triangular; high: no product, no factorization, and no backward pass of "
    "either"
)
_FIX = Fix(
    "Use the factor itself: `scale_tril=L` in place of `covariance_matrix=L @ L.mT`",
    "numerics",
    "MultivariateNormal(mean, covariance_matrix=L @ L.mT)",
    "MultivariateNormal(mean, scale_tril=L)  # L lower triangular, its diagonal positive",
)


def check(
    price: Price,
    readers: Readers,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one argument to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    found = list(_known(price, readers))
    if not found:
        return
    events, products = price.ops.events, np.array([product for product, _, _ in found], np.int64)
    rows = np.union1d(products, np.array([factor for _, factor, _ in found], np.int64))
    certain = 1.0 if all(triangular for _, _, triangular in found) else 0.0
    parts = ((with_backward(events, rows), certain, 1.0),)
    one = Equivalent(parts=parts, how=_HOW, shown=products, timed_on_device=False)
    if known := worth(price, lines, one, min_share):
        calls, size = len(found) / price.ops.steps.count, sizes(dims_of(events, found[0][0]), 0)[-1]
        yield known.finding(
            f"A matrix of {size:,} rows is multiplied with its own transpose{known.at} and factorized again, "
            f"{often(calls)}: {known.spent} with the backward pass.",
            {"factors": calls, "rows": size, "spent_us": known.spent_us},
            _FIX,
        )


def _known(price: Price, readers: Readers) -> Iterator[tuple[int, int, bool]]:
    """(product, factorization, whether of a triangle) of a matrix and its transpose, where nothing else reads it."""
    events = price.ops.events
    # A view is read under the name of what made its storage; where it is named itself, it is none of another matrix.
    makers: dict[int, list[int]] = {}
    for row in readers.rows.tolist():
        for reader in readers.looks(row) if events.text(row) not in _TRANSPOSES else ():
            makers.setdefault(reader, []).append(row)
    for product in price.ops.outermost_named(*_PRODUCTS).tolist():
        reading, made = readers.of(product), makers.get(product, [])
        if len(made) != 1 or len(reading) != 1 or events.text(reading[0]) not in _FACTORS:
            continue
        turned = any(events.text(one) in _TRANSPOSES and one < product for one in readers.looks(made[0]))
        if turned and _is_square(price, product):
            own, of = events.text(made[0]), {events.text(one) for one in makers.get(made[0], [])}
            yield product, reading[0], own == _TRIANGLE or (own == _SUM and _TRIANGLE in of <= _TRIANGULAR)


def _is_square(price: Price, product: int) -> bool:
    first, second = (sizes(dims_of(price.ops.events, product), at) for at in (0, 1))
    return first == second and len(first) > 1 and first[-1] == first[-2]


_NAMES = "linear tril transpose matmul linalg_cholesky sum"
_WAITS: list[list[int]] = [[], [1], [1], [2, 1], [1], [1]]


def _drawn(**ops: Any) -> Drawing:
    """A layer (F), its lower triangle (L), that transposed (T), the product (P), the factor (C), a sum (S)."""
    known = {
        "L": op("tril", [64, 30, 30], number=1),
        "T": op("transpose", [64, 30, 30], number=1),
        "P": op("matmul", [64, 30, 30], [64, 30, 30], number=2),
        "C": op("linalg_cholesky", [64, 30, 30], number=3),
        "S": op("sum", [64, 30, 30], number=4),
        "X": node(3, "LinalgCholeskyExBackward0"),
        "Y": node(2, "BmmBackward0"),
    }
    return two_steps("[F  ][L][T][P  ][C   ][S][X      ][Y    ][B  ][O ]", **(known | ops))


EXAMPLES = [
    Example(
        "a triangle that is multiplied to a covariance, of which the distribution takes the factor",
        _drawn(),
        saves_us=(1200, 2700),
        facts=observed(_NAMES, _WAITS),
        says=("A matrix of 30 rows is multiplied with its own transpose", "factorized again"),
        fixes=("scale_tril=L",),
    ),
    Example(
        "a matrix of which nothing tells that it is a triangle",
        _drawn(L=op("mul", [64, 30, 30], number=1)),
        saves_us=(0, 2700),
        facts=observed("linear mul transpose matmul linalg_cholesky sum", _WAITS),
    ),
    Example(
        "the product is read elsewhere, too",
        _drawn(),
        facts=observed(_NAMES, [[], [1], [1], [2, 1], [1], [2, 1]]),
        near_miss=True,
    ),
    Example(
        "a product of two matrices",
        _drawn(),
        facts=observed(_NAMES, [[], [1], [2], [2, 1], [1], [1]]),
        near_miss=True,
    ),
    Example(
        "the factor of a matrix of its own",
        _drawn(P=op("mul", [64, 30, 30], [64, 30, 30], number=2)),
        facts=observed("linear tril transpose mul linalg_cholesky sum", _WAITS),
    ),
]

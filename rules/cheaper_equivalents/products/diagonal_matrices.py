"""Diagonal matrices are written out, then factorized or multiplied.

## What it looks at
`torch.diag` and `torch.diag_embed` of vectors, the products and factorizations that read the matrix, what is solved
with its factor, and the backward pass of all of it. Which ops read a result, `advisor run` observes.

## Why it costs time
A diagonal matrix of n rows holds n numbers and n * n - n zeros. A product with it is one multiplication for each
number of the other matrix, its Cholesky factor is the square root of n numbers, and solving is a division. Written out,
they take n and n * n times as many multiplications. `MultivariateNormal(mean, torch.diag_embed(variance))`, common for
actions of a policy, also checks in each call that the matrix is symmetric and positive definite, by two factorizations.

## How to fix it
`vector[:, None] * x` in place of `torch.diag(vector) @ x`, and `x * vector` in place of `x @ torch.diag(vector)`. A
normal with independent coordinates is `Independent(Normal(mean, variance.sqrt()), 1)`: it has the same `log_prob`,
`entropy` and samples of the same distribution.

## When to leave it
Where the matrix gets other entries in some steps. Results differ in the last digits, and samples of the other
distribution use the generator's numbers in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    Drawing,
    Example,
    Finding,
    Fix,
    Ints,
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
from .._equivalent import Equivalent, Part, worth

_WRITES_OUT = ("aten::diag", "aten::diag_embed")
_FACTORS = frozenset(
    f"aten::{name}" for name in ("linalg_cholesky", "linalg_cholesky_ex", "cholesky", "inverse", "linalg_inv")
)
_PRODUCTS = frozenset(f"aten::{name}" for name in ("matmul", "mm", "bmm", "mv", "addmm", "baddbmm"))
_ALSO = frozenset(
    f"aten::{name}" for name in ("linalg_solve_triangular", "isclose", "logdet", "linalg_slogdet", "cholesky_solve")
)
# Measured shares: (up to so many numbers of the written-out matrices of one call, share that goes).
_OF_FACTORS = (
    (1 << 14, constant("share.small_diagonal_factors").range),
    (math.inf, constant("share.diagonal_factors").range),
)
_OF_PRODUCTS = (
    (1 << 15, constant("share.small_diagonal_product").range),
    (1 << 19, constant("share.middle_diagonal_product").range),
    (math.inf, constant("share.diagonal_product").range),
)
_HOW = "the share of these ops and their backward pass that computing with the vector saved in measurements on a CPU"
_NORMAL = Fix(
    "Describe independent coordinates with `Independent(Normal(...), 1)`",
    "numerics",
    "policy = MultivariateNormal(mean, torch.diag_embed(variance))",
    "policy = Independent(Normal(mean, variance.sqrt()), 1)",
)
_SCALE = Fix(
    "Multiply by the vector instead of a diagonal matrix",
    "numerics",
    "x = torch.diag(vector) @ x",
    "x = vector[:, None] * x  # x @ torch.diag(vector): x * vector",
)


def check(
    price: Price,
    readers: Readers,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one call to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events = price.ops.events
    factors: list[tuple[Ints, int]] = []
    products: list[tuple[Ints, int]] = []
    for row in price.ops.outermost_named(*_WRITES_OUT).tolist():
        shape = sizes(dims_of(events, row), 0)
        if not shape or (events.text(row) == "aten::diag" and len(shape) != 1):
            continue
        mine, is_factorized = _reading(readers, row)
        if len(mine) > 1:
            (factors if is_factorized else products).append((mine, math.prod(shape) * shape[-1]))
    for found, shares, fix in ((factors, _OF_FACTORS, _NORMAL), (products, _OF_PRODUCTS, _SCALE)):
        if not found:
            continue
        parts = tuple(_part(price, mine, numbers, shares) for mine, numbers in found)
        shown = np.array([mine[0] for mine, _ in found], np.int64)
        one = Equivalent(parts=parts, how=_HOW, shown=shown, timed_on_device=False)
        if known := worth(price, lines, one, min_share):
            times = len(found) / price.ops.steps.count
            what = "factorized" if fix is _NORMAL else "multiplied"
            yield known.finding(
                f"Diagonal matrices are written out{known.at} and {what}, {often(times)}, with up to "
                f"{max(numbers for _, numbers in found):,} numbers: {known.spent}, backward pass included.",
                {"matrices": times, "spent_us": known.spent_us},
                fix,
            )


def _part(price: Price, mine: Ints, numbers: int, shares: tuple[tuple[float, tuple[float, float]], ...]) -> Part:
    low, high = next(ends for most, ends in shares if numbers <= most)
    return with_backward(price.ops.events, mine), low, high


def _reading(readers: Readers, made: int) -> tuple[Ints, bool]:
    """The op that writes the matrix out with the ops that compute with it, and whether one is a factorization.

    Only the first where anything else reads the matrix. Of a factor others may read the diagonal, or whether it exists.
    """
    if any(readers.events.text(row) not in _FACTORS | _PRODUCTS | _ALSO for row in readers.of(made)):
        return np.array([made], np.int64), False
    found, left, is_factorized = [made], [made], False
    while left:
        for row in readers.of(left.pop()):
            name = readers.events.text(row)
            if name in _FACTORS:
                is_factorized = True
                left.append(row)
            elif name not in _PRODUCTS | _ALSO:
                continue
            if row not in found:
                found.append(row)
    return np.array(found, np.int64), is_factorized


_NAMES = "linear diag_embed linalg_cholesky linalg_solve_triangular"
_WAITS: list[list[int]] = [[], [1], [1], [1]]


def _drawn(**ops: Any) -> Drawing:
    """A layer (F), the matrix (D), its factor (C), what is solved with it (S), and their nodes."""
    known = {
        "D": op("diag_embed", [512, 8]),
        "C": op("linalg_cholesky", [512, 8, 8], number=1),
        "S": op("linalg_solve_triangular", [512, 8, 8], [512, 8, 1], number=2),
        "X": node(2, "LinalgSolveTriangularBackward0"),
        "Y": node(1, "LinalgCholeskyExBackward0"),
    }
    return two_steps("[F  ][D][C   ][S   ][X   ][Y    ][B  ][O ]", **(known | ops))


_PRODUCT = _drawn(D=op("diag", [1024]), C=op("matmul", [1024, 1024], [1024, 64], number=1), S=op("sum", [1024, 64]))

EXAMPLES = [
    Example(
        "a normal with a diagonal covariance",
        _drawn(),
        saves_us=(1200, 2800),
        facts=observed(_NAMES, _WAITS),
        says=("written out", "factorized", "32,768 numbers"),
    ),
    Example(
        "a product with a diagonal matrix",
        _PRODUCT,
        saves_us=(500, 1800),
        facts=observed("linear diag matmul sum", _WAITS),
        says=("multiplied",),
        fixes=("vector[:, None] * x",),
    ),
    Example(
        "the diagonal of a matrix is read",
        _drawn(D=op("diag", [512, 512]), C=op("matmul", [512, 512], [512, 64]), S=op("sum", [512, 64])),
        facts=observed("linear diag matmul sum", _WAITS),
        near_miss=True,
    ),
    Example(
        "the matrix is added to another one before",
        _drawn(C=op("add", [512, 8, 8], [512, 8, 8])),
        facts=observed("linear diag_embed add linalg_solve_triangular", _WAITS),
        near_miss=True,
    ),
    Example(
        "it is multiplied, and added to another matrix, too",
        _drawn(
            D=op("diag", [1024]),
            C=op("matmul", [1024, 1024], [1024, 64], number=1),
            S=op("add", [1024, 1024], [1024, 1024]),
        ),
        facts=observed("linear diag matmul add", [[], [1], [1], [2]]),
        near_miss=True,
    ),
    Example("a normal for each coordinate", two_steps("[F  ][B  ][O ]"), None, observed("linear", [[]])),
]

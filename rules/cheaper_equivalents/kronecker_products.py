"""A Kronecker product is written out to be multiplied with.

## What it looks at
`torch.kron` of two matrices whose result one layer or product reads and nothing else, with that product and the
backward pass of both. Which ops read a result, `advisor run` observes.

## Why it costs time
The Kronecker product of two matrices of a x b and c x d numbers has ac x bd, and multiplying with it takes ac · bd
multiplications for each sample. The same result comes of two products with the small matrices, which take
bc · (a + d): an eighth for matrices of 16 x 16. Nothing large is written, and no gradient of it.

## How to fix it
`kron(A, B) x` is `A X B^T`, where X is x as a matrix of b x d: `grid = x.unflatten(-1, (b, d))` and
`(A @ (grid @ B.mT)).flatten(-2)`.

## When to leave it
Small matrices and few samples, whose two products are mostly their calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from advisor.api import (
    Drawing,
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

from ..shared._examples import node, observed, op, two_steps
from ..shared._words import often
from ._equivalent import Equivalent, Part, worth

_KRON = "aten::kron"
# Which input of the product is the matrix: of any, but of a layer the weight.
_PRODUCTS = ("aten::linear", "aten::matmul", "aten::mm", "aten::mv", "aten::addmm")
# Small products reach less of what the machine multiplies at.
_LONGER = constant("share.kronecker_factors_longer").range
_HOW = (
    "low and high: without the large matrix, its product in the share of its multiplications that two products with "
    "the small matrices need, each of which takes {:.2g} to {:.2g} times as long"
)
_FIX = Fix(
    "Multiply with both small matrices instead of their Kronecker product",
    "numerics",
    "y = F.linear(x, torch.kron(A, B), bias)  # A: a x b, B: c x d",
    "grid = x.unflatten(-1, (A.shape[1], B.shape[1]))\ny = (A @ (grid @ B.mT)).flatten(-2) + bias",
)


class _Found(NamedTuple):
    """The product that reads the large matrix, the op that writes that, and the share of multiplications that stays."""

    product: int
    kron: int
    kept: float


def check(
    price: Price,
    readers: Readers,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # of the step: two lines of a layer to rewrite, and its output to compare
) -> Iterator[Finding]:
    found = list(_found(price, readers))
    if not found:
        return
    events = price.ops.events
    written = with_backward(events, np.array([one.kron for one in found], np.int64))
    parts: list[Part] = [(written, 1.0, 1.0)]
    for one in found:
        rows = with_backward(events, np.array([one.product], np.int64))
        least, most = (1 - min(one.kept * longer, 1.0) for longer in reversed(_LONGER))
        parts.append((rows, least, most))
    products = np.array([one.product for one in found], np.int64)
    pattern = Equivalent(parts=tuple(parts), how=_HOW.format(*_LONGER), shown=products, timed_on_device=False)
    if known := worth(price, lines, pattern, min_share):
        high, wide = (prod(pair) for pair in zip(*_matrices(price, found[0].kron), strict=True))
        yield known.finding(
            f"A Kronecker product of {high:,} x {wide:,} numbers is written out and multiplied with{known.at}, "
            f"{often(len(found) / price.ops.steps.count)}: {known.spent} with the backward pass.",
            {"products": len(found) / price.ops.steps.count, "rows": high, "columns": wide},
            _FIX,
        )


def _found(price: Price, readers: Readers) -> Iterator[_Found]:
    events = price.ops.events
    for row in price.ops.outermost_named(_KRON).tolist():
        shapes, reading = _matrices(price, row), readers.of(row)
        if len(reading) != 1 or events.text(reading[0]) not in _PRODUCTS or not all(len(one) == 2 for one in shapes):
            continue
        (rows, _), (_, columns) = shapes
        kept = 1 / rows + 1 / columns
        if kept < 1:
            yield _Found(reading[0], row, kept)


def _matrices(price: Price, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dims = dims_of(price.ops.events, row)
    return sizes(dims, 0), sizes(dims, 1)


_NAMES = "kron linear gelu sum"
_READ: list[list[int]] = [[], [1], [1], [1]]


def _drawn(small: list[int], **ops: Any) -> Drawing:
    """A Kronecker product (K), the layer that reads it (L), an activation (A), a sum (S)."""
    large = [small[0] * small[0], small[1] * small[1]]
    known = {
        "K": op("kron", small, small, number=1),
        "L": op("linear", [64, large[1]], large, number=2),
        "A": op("gelu", [64, large[0]], number=3),
        "S": op("sum", [64, large[0]], number=4),
        "X": node(2, "AddmmBackward0"),
        "Y": node(1, "MulBackward0"),
    }
    return two_steps("[K  ][L    ][A][S][X      ][Y    ][B  ][O ]", **(known | ops))


EXAMPLES = [
    Example(
        "a layer whose weight is a Kronecker product",
        _drawn([16, 16]),
        saves_us=(2000, 3200),
        facts=observed(_NAMES, _READ),
        says=("A Kronecker product of 256 x 256 numbers is written out",),
        fixes=("both small matrices",),
    ),
    Example(
        "of matrices of two rows and columns, which save no multiplication",
        _drawn([2, 2]),
        facts=observed(_NAMES, _READ),
        near_miss=True,
    ),
    Example(
        "a matrix that something else reads as well",
        _drawn([16, 16]),
        facts=observed(_NAMES, [[], [1], [2], [1]]),
        near_miss=True,
    ),
    Example(
        "a weight that is no such product",
        _drawn([16, 16], K=op("mul", [256, 256], [256, 256], number=1)),
        facts=observed("mul linear gelu sum", _READ),
    ),
]

"""Broadcasting copies a few matrices for each of many vectors.

## What it looks at
`aten::matmul` of tensors with three and more dimensions, one of which has fewer matrices than the result and is
broadcast to it: `weight @ x` with a weight of (groups, rows, columns) and x of (samples, groups, columns, 1). By the
shapes of both tensors, and where the copies are most of the numbers that the product reads and writes.

## Why it costs time
Matrix products of more than two dimensions run as one batch of products, each with a matrix of its own. A matrix that
is broadcast within a batch of several is copied for each product: 4 matrices of 32 x 32 and 4,096 samples become 67 MB
that are written, read once for a product with a single column, and again for the gradients.

## How to fix it
Let the samples be the columns of one product for each group: `torch.einsum("grc,sgck->sgrk", weight, x)` arranges that,
as do `torch.bmm(weight, x.squeeze(-1).permute(1, 2, 0))` and a convolution with `groups=`.

## When to leave it
Where each sample has a matrix of its own. Results differ in the last digits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from advisor.api import Drawing, Example, Finding, Fix, Lines, Price, constant, dims_of, sizes, with_nodes

from ...shared._examples import node, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, rows_of, worth
from ._broadcast_origins import broadcast

# Vectors for each copy, at most, as measured: with more of them a copy is less of what the product takes.
_MOST_VECTORS = 4
# Nor is it where copies are not this many times the other numbers.
_LEAST_OF_NUMBERS = 2
# Measured shares that go: of matrices of at least so many numbers with so many copies.
_SHARES = (
    (1024, 64, constant("share.copied_matrices").range),
    (64, 512, constant("share.small_copied_matrices").range),
)
_HOW = "the share of this product and its backward pass that one without copies saved in measurements on a CPU"
_FIX = Fix(
    "Let the samples be the columns of one product for each matrix",
    "numerics",
    "y = weight @ x  # (groups, rows, columns) @ (samples, groups, columns, 1)",
    'y = torch.einsum("grc,sgck->sgrk", weight, x)',
)
Shape = tuple[int, ...]


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # one line to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, outer = price.ops.events, price.ops.outermost
    copied = {}
    for row in price.ops.outermost_named("aten::matmul").tolist():
        dims = dims_of(events, row)
        if of_row := _copied(sizes(dims, 0), sizes(dims, 1)):
            copied[row] = of_row
    if not copied:
        return
    of_share = defaultdict(list)
    for row, (_, _, share) in copied.items():
        of_share[share].append(row)
    parts = tuple((with_nodes(events, outer, rows_of(*mine)), *share) for share, mine in of_share.items())
    rows = np.array(list(copied), np.int64)
    one = Equivalent(parts=parts, how=_HOW, ops="long", timed_on_device=False, shown=rows)
    if known := worth(price, lines, one, min_share):
        matrices, copies, _ = copied[int(rows[0])]
        yield known.finding(
            f"A product of {count(matrices)} matrices with many vectors{known.at} copies each of them "
            f"{count(copies)} times: {known.spent}, backward pass included.",
            {"products": len(rows) / price.ops.steps.count, "copies": copies, "spent_us": known.spent_us},
            _FIX,
        )


def _copied(left: Shape, right: Shape) -> tuple[int, int, tuple[float, float]] | None:
    """Matrices that are broadcast, copies of each, and what goes; None where copies are not what it takes.

    A single matrix is not copied: it is read anew for each product.
    """
    if min(len(left), len(right)) < 3:  # torch folds the samples into rows itself
        return None
    products = math.prod(broadcast(left[:-2], right[:-2]))
    result = products * left[-2] * right[-1]
    for mine, other, vectors in ((left, right, right[-1]), (right, left, left[-2])):
        matrices, size = math.prod(mine[:-2]), mine[-2] * mine[-1]
        copies = products // max(matrices, 1)
        share = next((share for least, many, share in _SHARES if size >= least and copies >= many), None)
        if (
            share
            and matrices > 1
            and vectors <= _MOST_VECTORS
            and products * size >= _LEAST_OF_NUMBERS * (math.prod(other) + result)
        ):
            return matrices, copies, share
    return None


def _drawn(left: list[int], right: list[int]) -> Drawing:
    """A layer, the product, the backward pass of both."""
    product = op("matmul", left, right, number=7)
    return two_steps("[F][P          ][Q              ][B ]", P=product, Q=node(7, "UnsafeViewBackward0"))


EXAMPLES = [
    Example(
        "four matrices, each with a vector of every sample",
        _drawn([4, 32, 32], [1024, 4, 32, 1]),
        saves_us=(100, 2900),
        says=("4 matrices", "1,024 times"),
    ),
    Example("each sample has matrices of its own", _drawn([1024, 4, 32, 32], [1024, 4, 32, 1])),
    Example("one matrix for all: it is not copied", _drawn([1, 32, 32], [1024, 32, 1]), near_miss=True),
    Example(
        "sixteen vectors for each copy: what that takes was not measured",
        _drawn([4, 128, 128], [1024, 4, 128, 16]),
        near_miss=True,
    ),
    Example("a matrix of two dimensions", _drawn([32, 32], [1024, 32, 1]), near_miss=True),
]

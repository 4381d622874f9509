"""All pairs are compared by broadcasting instead of one matrix multiplication.

## What it looks at
Ops that broadcast two tensors against each other (`x[:, None] - y[None]`, `x[:, None] * y[None]`) and whose result is
only summed over the elements of each pair: similarities, cosines, squared, Euclidean and absolute distances of all
pairs, written by hand or with `cosine_similarity` and `pairwise_distance`. Likewise outer products of rows whose sum
alone is read, by broadcasting, `einsum("bi,bj->bij", ...)` or products of a column and a row, as in covariances; and
differences of all pairs that are only summed with weights, as residuals of clusters are.
`advisor run` observes in one step that nothing else reads the result; the last two functions are recognized only by
their shapes.

## Why it costs time
For 128 rows of 64 numbers, compared with each other, every intermediate op reads and writes a million numbers, and the
backward pass does so again for each of them; 16 thousand are needed. A matrix multiplication computes these without any
tensor of that size, in an order that suits the caches.

## How to fix it
`x @ y.T` for dot products, `F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T` for cosines, `torch.cdist(x, y)` for
distances, `x.T @ y` for sums of outer products. A weighted sum of differences is the weighted sum of the rows less the
other side times the sum of the weights.

## When to leave it
Where the differences themselves are needed, as for directions. Sums are computed in another order, so results differ in
the last digits; distances of rows that are nearly equal lose more of them
(`compute_mode="donot_use_mm_for_euclid_dist"` keeps them, and takes longer).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import FORWARD, Drawing, Example, Finding, Fix, Ints, Lines, Price, Readers, constant, nodes_of

from ...shared._examples import observed, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, Worth, rows_of, whole, worth
from ._all_pairs import AllPairs, Kind, all_pairs, instead_us

CONFIRMED = "measured pair on a CPU: cosines of all pairs of a batch by broadcasting against a matrix multiplication"

_HOW = (
    "these ops and their backward pass, minus a matrix multiplication, relative to an elementwise op as measured for "
    "seven sizes on a CPU"
)
# What a product of matrices takes of outer products that are summed, by how many numbers are written out.
_LEFT_OF_MANY = constant("share.many_outer_products").range
_LEFT_OF_FEW = constant("share.few_outer_products").range
_MANY = constant("numbers.many_outer_products").value
# Of weighted differences the same shares were measured, from so many numbers on.
_WEIGHTED = constant("numbers.least_weighted_differences").value
# A product of matrices gives these; the others have ops of their own.
_LINEAR: tuple[Kind, Kind] = ("outer", "weighted")


def check(
    price: Price,
    lines: Lines | None,
    readers: Readers | None,
    *,
    min_share: float = 0.03,  # one line to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    found = sorted(all_pairs(price.ops.events, price.ops.outermost, readers), key=lambda one: -math.prod(one.shape))
    compared = [one for one in found if one.kind not in _LINEAR]
    outer = [one for one in found if one.kind == "outer"]
    weighted = [one for one in found if one.kind == "weighted" and math.prod(one.shape) >= _WEIGHTED]
    if compared and (known := worth(price, lines, _compared(price, compared), min_share)):
        yield known.finding(
            f"{count(compared[0].pairs)} pairs of {count(compared[0].width)} numbers are compared{known.at} through an "
            f"intermediate tensor of {count(math.prod(compared[0].shape))}: {known.spent}, backward pass included.",
            _facts(price, compared, known),
            _FIXES[compared[0].kind],
        )
    if outer and (known := worth(price, lines, _outer(price, outer), min_share)):
        yield known.finding(
            f"{count(outer[0].width)} outer products of {count(outer[0].pairs)} numbers are written out{known.at}, and "
            f"only their sum is read: {known.spent}, backward pass included.",
            _facts(price, outer, known),
            _FIXES["outer"],
        )
    if weighted and (known := worth(price, lines, _outer(price, weighted), min_share)):
        yield known.finding(
            f"Differences of all pairs are written out{known.at} in a tensor of "
            f"{count(math.prod(weighted[0].shape))}, and only their weighted sums are read: {known.spent}, backward "
            "pass included.",
            _facts(price, weighted, known),
            _FIXES["weighted"],
        )


def _compared(price: Price, found: list[AllPairs]) -> Equivalent:
    """Comparisons of all pairs of rows, minus products."""
    backward = [_nodes(price, one) for one in found]
    instead = [instead_us(price, one, bool(len(nodes))) for one, nodes in zip(found, backward, strict=True)]
    least_us, most_us = (sum(ends) / price.ops.steps.count for ends in zip(*instead, strict=True))
    return Equivalent(
        parts=whole(np.unique(np.concatenate([*(rows_of(*one.rows) for one in found), *backward]))),
        how=_HOW,
        instead_us=(least_us, most_us),
        timed_on_device=False,
        shown=rows_of(*(one.rows[0] for one in found)),
    )


def _outer(price: Price, found: list[AllPairs]) -> Equivalent:
    """Sums of outer products, or of weighted differences: a share of each stays."""
    parts = []
    for one in found:
        least, most = _LEFT_OF_MANY if math.prod(one.shape) >= _MANY else _LEFT_OF_FEW
        parts.append((np.union1d(rows_of(*one.rows), _nodes(price, one)), 1 - most, 1 - least))
    return Equivalent(
        parts=tuple(parts),
        how="the share of these ops and their backward pass that a matrix product saved in measurements on a CPU",
        ops="long",
        timed_on_device=False,
        shown=rows_of(*(one.rows[0] for one in found)),
    )


def _nodes(price: Price, one: AllPairs) -> Ints:
    return nodes_of(price.ops.events, price.ops.outermost, rows_of(*one.rows))


def _facts(price: Price, found: list[AllPairs], known: Worth) -> dict[str, Any]:
    numbers = math.prod(found[0].shape)
    return {"comparisons": len(found) / price.ops.steps.count, "numbers": numbers, "spent_us": known.spent_us}


_DISTANCE = "distance = torch.cdist(x, y)"
_FIXES: dict[Kind, Fix] = {
    "cosine": Fix(
        "Normalize both, then multiply the matrices",
        "numerics",
        "similarity = F.cosine_similarity(x[:, None], y[None], dim=2)",
        "similarity = F.normalize(x, dim=1) @ F.normalize(y, dim=1).T",
    ),
    "product": Fix("Multiply the matrices", "numerics", "scores = (x[:, None] * y[None]).sum(-1)", "scores = x @ y.T"),
    "outer": Fix(
        "Multiply the matrix of all rows, transposed, by itself or by the other one",
        "numerics",
        'covariance = torch.einsum("bi,bj->bij", x, x).mean(0)',
        "covariance = x.T @ x / len(x)",
    ),
    "weighted": Fix(
        "Multiply the weights by the rows, and subtract the other side times the sum of its weights",
        "numerics",
        "residual = x[:, None] - centroids[None, :, :, None]  # [batch, clusters, width, points]\n"
        "y = (residual * weights[:, :, None]).sum(-1)",
        "y = weights @ x.mT - weights.sum(-1, keepdim=True) * centroids",
    ),
    "square": Fix(
        "Use `torch.cdist`",
        "numerics",
        "distance = (x[:, None] - y[None]).pow(2).sum(-1)",
        "distance = torch.cdist(x, y).pow(2)",
    ),
    "absolute": Fix(
        "Use `torch.cdist`",
        "numerics",
        "distance = (x[:, None] - y[None]).abs().sum(-1)",
        "distance = torch.cdist(x, y, p=1)",
    ),
    "norm": Fix("Use `torch.cdist`", "numerics", "distance = (x[:, None] - y[None]).norm(dim=-1)", _DISTANCE),
}


_LEFT, _RIGHT, _BOTH, _RESULT = [128, 1, 64], [1, 128, 64], [128, 128, 64], [128, 128]
_WAITS: list[list[int]] = [[], [1], [1], [1], [1]]


def _drawn(**changed: Any) -> Drawing:
    """Layers (F), the comparison (A, P, S), what reads it (R), the backward pass (B)."""
    ops: dict[str, Any] = {"A": op("sub", _LEFT, _RIGHT), "P": op("pow", _BOTH), "S": op("sum", _BOTH)}
    return two_steps(
        "[F][A       ][P     ][S     ][R][B   ]", **(ops | {"R": op("cross_entropy_loss", _RESULT)} | changed)
    )


_COSINES = {"P": op("cosine_similarity", _LEFT, _RIGHT), "A": FORWARD, "S": FORWARD}
_ON_GPU = two_steps(
    "[F][P     ][B   ]",
    gpu="  [K         ][E            ]",
    F=op("linear", launches="kernel"),
    P=op("cosine_similarity", _LEFT, _RIGHT, launches="kernel"),
)
_OUTER: dict[str, Any] = {
    "A": op("einsum", [], [[256, 64], [256, 64]], []),
    "M": op("mul", [256, 64, 1], [256, 1, 64]),
    "S": op("mean", [256, 64, 64]),
    "R": op("sub", [64, 64], [64, 64]),
}
_RESIDUAL = [8, 16, 48, 100]
_VLAD = {"S": op("sum", _RESIDUAL), "R": op("linear", [8, 16, 48], [48, 48])}
_DISTANCES = observed("linear sub pow sum cross_entropy_loss", _WAITS)

EXAMPLES = [
    Example(
        "squared distances of all pairs",
        _drawn(),
        saves_us=(2000, 2700),
        facts=_DISTANCES,
        says=("16,384 pairs of 64 numbers", "tensor of 1,048,576"),
    ),
    Example("cosines, of a trace alone", _drawn(**_COSINES), saves_us=(600, 900)),
    Example("the same beside a GPU", _ON_GPU, saves_us=(0, 800)),
    Example(
        "the differences are read once more, as directions",
        _drawn(R=op("mul", _BOTH, _RESULT)),
        facts=observed("linear sub pow sum mul", [[], [1], [1], [1], [1, 3]]),
        near_miss=True,
    ),
    Example(
        "each row is compared with its own partner",
        _drawn(A=op("sub", [16384, 64], [16384, 64])),
        facts=_DISTANCES,
        near_miss=True,
    ),
    Example(
        "weights of channels: nothing is compared with all",
        _drawn(A=op("mul", _BOTH, [64])),
        facts=observed("linear mul pow sum cross_entropy_loss", _WAITS),
        near_miss=True,
    ),
    Example("nobody looked what reads them", _drawn(), None, near_miss=True),
    Example(
        "a covariance by outer products, which einsum calls a product for",
        two_steps("[F][A       ][S     ][R][B   ]", "   [M    ]", **_OUTER),
        saves_us=(600, 2000),
        facts=observed("linear einsum mean sub", [[], [1], [1], [1]]),
        says=("256 outer products of 4,096 numbers",),
        fixes=("x.T @ x",),
    ),
    Example(
        "outer products that are kept, one of each row",
        two_steps("[F][A       ][S     ][R][B   ]", "   [M    ]", **_OUTER),
        facts=observed("linear einsum mean sub", [[], [1], [1], [2]]),
        near_miss=True,
    ),
    Example(
        "residuals of clusters, weighted and summed over the points of a picture",
        _drawn(A=op("sub", [8, 1, 48, 100], [1, 16, 48, 1]), P=op("mul", _RESIDUAL, [8, 16, 1, 100]), **_VLAD),
        saves_us=(900, 2700),
        facts=observed("linear sub mul sum linear", _WAITS),
        says=("weighted sums",),
        fixes=("weights @ x.mT",),
    ),
    Example(
        "the same residuals, squared by weights of their own size",
        _drawn(A=op("sub", [8, 1, 48, 100], [1, 16, 48, 1]), P=op("mul", _RESIDUAL, [8, 16, 48, 100]), **_VLAD),
        facts=observed("linear sub mul sum linear", [[], [1], [1, 2], [1], [1]]),
        near_miss=True,
    ),
    Example("cdist", _drawn(A=op("cdist", [128, 64], [128, 64])), None),
]

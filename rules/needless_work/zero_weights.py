"""Part of a loss is computed and differentiated, and then multiplied by zero.

## What it looks at
Products of a tensor that has a gradient with the number zero (`loss + args.weight * extra`), and sums that add zero
times a tensor, and the ops whose results lead to nothing but such a product. The profile contains neither that number
nor what ops read: `advisor run` takes the number from autograd's graph, and observes in two separate steps which
tensors ops read. The product must be by zero in both. Not recognized: a zero that is itself trained (a gate that
opens), a weight that is a tensor on a GPU, and terms under torch.compile.

## Why it costs time
Autograd does not know that the gradient is zero: the term takes its whole forward and backward pass. For a
discriminator that joins in later, or an auxiliary head whose weight was set to zero, that is a second network.

## How to fix it
Compute the term only if its weight is not zero: `if weight: loss = loss + weight * extra(x)`. A weight that grows later
(a start iteration, a warm-up) then skips the term until then. If the term is a loss with an optimizer of its own, skip
its backward pass and its step, too.

## When to leave it
If a side effect of the term is wanted: batch normalization in it updates its running statistics, dropout draws random
numbers, and a term that is NaN or infinite makes the loss NaN even with weight zero. Parameters that only the term
reaches get no gradient instead of zeros: an optimizer then skips them, and weight decay no longer shrinks them.
DistributedDataParallel expects a gradient of each parameter: `0 * sum(p.sum() for p in unused)`, which is cheap, keeps
it satisfied where the skipped network does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import Drawing, Example, Finding, Fix, Ints, Lines, ObservedOps, Price, Source, ZeroTerms, nodes_of

from ..cheaper_equivalents._equivalent import Equivalent, worth
from ..shared._examples import node, observed, op, two_steps
from ..shared._places import TRIED, first_line

_HOW = (
    "the forward pass of the term and the backward pass of all its ops; low: without the forward pass of ops of which "
    "Python reads a number as well"
)


def check(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a condition to write; terms below 3 % of the step may keep the code simple
) -> Iterator[Finding]:
    terms = seen.seen.zero_terms
    if terms is None or not seen.places:
        return
    by_cost = _by_cost(price, terms, seen)
    forward, told = seen.rows_at(terms.ops), seen.rows_at(terms.told)
    nodes = nodes_of(price.ops.events, price.ops.outermost, np.sort(np.concatenate((forward, told))))
    if not len(nodes):
        return
    one = Equivalent(
        parts=((forward, 1.0, 1.0), (told, 0.0, 1.0), (nodes, 1.0, 1.0)), how=_HOW, shown=by_cost[0][0], at_most="high"
    )
    if known := worth(price, lines, one, min_share):
        finding = known.finding(
            f"A part of the loss is multiplied by zero{known.at}, and computed and differentiated all the same: "
            f"{known.spent}.{_STATISTICS if terms.statistics else ''}",
            {"products": len(terms.products), "spent_us": known.spent_us},
            _SKIP,
        )
        yield replace(finding, where=_places(lines, by_cost)) if lines else finding


def _by_cost(price: Price, terms: ZeroTerms, seen: ObservedOps) -> list[tuple[Ints, Ints]]:
    """Events of each product, and of the ops of its term, the longest first; the costliest term comes first."""
    dur_ns, work = price.ops.events.dur_ns, sorted({*terms.ops, *terms.told})
    found = []
    for before, product in pairwise((-1, *terms.products)):
        rows = seen.rows_at([at for at in work if before < at <= product])
        found.append((seen.rows_at([product]), rows[np.argsort(-dur_ns[rows], kind="stable")]))
    return sorted(found, key=lambda one: -int(dur_ns[one[1]].sum()))


def _places(lines: Lines, terms: list[tuple[Ints, Ints]]) -> tuple[Source, ...]:
    """The statement of each product, and the line that takes most of its term."""
    found = (first_line(lines, rows[:TRIED]) for term in terms for rows in term)
    return tuple(dict.fromkeys(one for one in found if one is not None))


_STATISTICS = " Batch normalization in it updates its running statistics, which it then would not."
_SKIP = Fix(
    "Skip the term while its weight is zero",
    "semantics",
    "loss = criterion(output, y) + weight * extra(features)",
    "loss = criterion(output, y)\nif weight:\n    loss = loss + weight * extra(features)",
)

_LANE = "[F  ][A      ][M][N][S][X][Y      ][Z  ]"
_ROWS, _LAYER = [64, 256], [256, 256]


# A layer (F), a head for the term (A) with its mean (M), times the weight (N), the sum (S), the nodes of M, A and F.
_OPS: dict[str, Any] = {
    "F": op("linear", _ROWS, _LAYER, [256], number=1),
    "A": op("linear", _ROWS, _LAYER, [256], number=2),
    "M": op("mean", _ROWS, number=3),
    "N": op("mul", [], [], number=4),
    "S": op("add", [], [], number=5),
    "X": node(3, "MeanBackward0"),
    "Y": node(2),
    "Z": node(1),
}


def _drawn(**changed: Any) -> Drawing:
    return two_steps(_LANE, **(_OPS | changed))


def _facts(**terms: Any) -> dict[str, Any]:
    return observed("linear linear mean mul add", [[], [1], [1], [1], [1, 4]], **terms)


_TOUCHED = {
    "F": _OPS["F"],
    "A": op("sum", _LAYER, number=2),
    "N": op("mul", [], [], number=3),
    "S": op("add", [], [], number=4),
    "X": node(3, "MulBackward0"),
    "Y": node(2, "SumBackward0"),
    "Z": node(1),
}
_SPARED = {"products": [3], "ops": [1, 2, 3], "told": []}
EXAMPLES = [
    Example(
        "a head whose loss has the weight zero",
        _drawn(),
        saves_us=(2500, 2700),
        facts=_facts(zero_terms=_SPARED),
        says=("multiplied by zero",),
    ),
    Example(
        "its value is printed in each step",
        _drawn(),
        saves_us=(1300, 2700),
        facts=_facts(zero_terms={"products": [3], "ops": [3], "told": [1, 2], "statistics": True}),
        says=("running statistics",),
    ),
    Example("the weight is not zero", _drawn(), None, _facts()),
    Example(
        "parameters are summed and multiplied by zero, so that each has a gradient",
        two_steps("[F      ][A][N][S][X][Y][Z        ]", **_TOUCHED),
        facts=observed("linear sum mul add", [[], [], [1], [1, 3]]),
        near_miss=True,
    ),
    Example("nobody looked", _drawn(), None, {}, skipped="was not recorded"),
]

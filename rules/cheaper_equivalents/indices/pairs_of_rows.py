"""Products of all pairs of rows are written out, only to be summed.

## What it looks at
Two indices that take rows of one tensor along one dimension, each as many as that dimension has pairs, the product of
what they take, and its sum: `(x[:, i] * x[:, j]).sum(...)`, as in factorization machines and models with products of
features. Profiles do not record which tensors an op reads; `advisor run` observes it in separate steps. Only the
product may read the rows, and only the sum the product.

## Why it costs time
26 fields have 325 pairs. The rows of both sides are copied 325 times for each sample, multiplied, and in the backward
pass added up again row by row, on a CPU by one thread for each sample.

## How to fix it
The sum over all pairs is half of the square of the sum less the sum of the squares:
`0.5 * (x.sum(1).square() - x.square().sum(1))`. Products of each pair are a matrix product, of which one half is read:
`(x @ x.mT)[:, i, j]`. With the backward pass the first took 1 to 35 % of the time of the pairs, the second 4 to 64 %
(a CPU, 42 and 31 sizes).

## When to leave it
Where only some of the pairs are multiplied, or one of them twice: the number of pairs is compared, not which they are.
Where each pair has one number only, the matrix product saves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import Drawing, Example, Finding, Fix, Lines, ObservedOps, Price, constant, with_backward

from ...shared._examples import node, observed, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, worth

# What is left of the pattern's time, with the backward pass.
_SUMMED, _EACH = constant("share.pair_products_summed").range, constant("share.pair_products_each").range
# A matrix product of fewer numbers took as long as the pairs.
_FEWEST_NUMBERS = 8


def check(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one expression to change; below 2 % of the step the gain is within the noise
) -> Iterator[Finding]:
    events = price.ops.events
    for places, of, pairs, numbers, summed in seen.seen.pair_products:
        rows = seen.rows_at(places)
        if not len(rows) or not (summed or numbers >= _FEWEST_NUMBERS):
            continue
        left = _SUMMED if summed else _EACH
        one = Equivalent(
            parts=((with_backward(events, rows), 1 - left[1], 1 - left[0]),),
            how="low: less the most that a replacement was measured to take; high: the least",
            ops="long",
            timed_on_device=False,
            shown=rows,
        )
        if known := worth(price, lines, one, min_share):
            yield known.finding(
                f"The products of {count(pairs)} pairs of {count(of)} rows are written out{known.at} and summed: "
                f"{known.spent}, backward pass included.",
                {"pairs": pairs, "rows": of, "spent_us": known.spent_us},
                _OF_ALL if summed else _OF_EACH,
            )


_OF_ALL = Fix(
    "Take the square of the sum less the sum of the squares",
    "numerics",
    "y = (x[:, i] * x[:, j]).sum(1)  # all pairs i < j",
    "y = 0.5 * (x.sum(1).square() - x.square().sum(1))",
)
_OF_EACH = Fix(
    "Multiply the rows as a matrix, and read the pairs of the result",
    "numerics",
    "y = (x[:, i] * x[:, j]).sum(-1)",
    "y = (x @ x.mT)[:, i, j]",
)
_PAIRS = [1024, 66, 32]
_NAMES = "linear index index mul sum linear"


def _drawn(**changed: Any) -> Drawing:
    """Rows of all samples (F), two indices (I, J), their product (P), its sum (S), a layer (L), and their nodes."""
    ops: dict[str, Any] = {
        "F": op("linear", [1024, 384], [384, 384], number=1),
        "I": op("index", [1024, 12, 32], [], number=2),
        "J": op("index", [1024, 12, 32], [], number=3),
        "P": op("mul", _PAIRS, _PAIRS, number=4),
        "S": op("sum", _PAIRS, number=5),
        "L": op("linear", [1024, 32], [1, 32], number=6),
        **{word: node(6 - at) for at, word in enumerate("ABCDEG")},
    }
    return two_steps("[F  ][I   ][J   ][P  ][S ][L][A][B ][C  ][D      ][E      ][G   ]", **(ops | changed))


def _facts(*products: tuple[list[int], int, int, int, bool]) -> dict[str, Any]:
    return observed(_NAMES, [[], [1], [2], [1, 2], [1], [1]], pair_products=products)


EXAMPLES = [
    Example(
        "a factorization machine of 12 fields",
        _drawn(),
        saves_us=(3200, 5000),
        facts=_facts(([1, 2, 3, 4], 12, 66, 32, True)),
        says=("66 pairs of 12 rows",),
        fixes=("square of the sum",),
    ),
    Example(
        "inner products of each pair, which go into a layer",
        _drawn(),
        saves_us=(1700, 4800),
        facts=_facts(([1, 2, 3, 4], 12, 66, 32, False)),
        fixes=("as a matrix",),
    ),
    Example(
        "pairs of one number each: the matrix product takes as long",
        _drawn(),
        facts=_facts(([1, 2, 3, 4], 12, 66, 1, False)),
        near_miss=True,
    ),
    Example("some pairs only", _drawn(), None, observed(_NAMES, [[]] * 6, leaving=[5]), near_miss=True),
    Example("nobody looked", _drawn(), None, {}, skipped="was not recorded"),
]

"""Low-rank factors are merged into a weight in every forward pass.

## What it looks at
Products of two trained parameters, `[out, rank]` and `[rank, in]` with a small rank, whose result becomes the weight of
a layer in the same forward pass, while no weight of that size is trained: an adapter (LoRA) that is merged into its
frozen layer, or a low-rank layer whose full weight is materialized. Counted are the product and the ops on its result
before the layer, their part of the backward pass, and the gradient of the full weight that the layer computes.

## Why it costs time
The product writes a matrix as large as the layer's weight, and so do the scaling and the sum; in the backward pass the
gradient of that matrix costs as much as the layer itself did, and all of it is reduced to the gradients of two thin
factors. Applied to the activations one after the other, the factors need none of these.

## How to fix it
`base(x) + scale * F.linear(F.linear(x, down), up)`. Merge once, after the training.

## When to leave it
Where the layer gets far more rows than its weight has. Results differ in their last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import GRADIENT_STORE, Drawing, Ev, Example, Finding, Fix, Lines, Price

from ...shared._examples import node, op, two_steps
from ...shared._words import plural
from .._equivalent import Equivalent, rows_of, worth
from ._merged_weights import merged

CONFIRMED = "measured pair on a CPU: adapters of rank 8 in a language model, merged in each pass and kept as factors"

# Products of the activations with the factors come instead: forward, and for both gradients in the backward pass.
_INSTEAD = 3

_HOW = (
    "without merged weights and their gradients, minus the products with the factors; low: also minus what those read "
    "and write at the rate of the merged weights, high: which stays in the caches"
)
_FIX = Fix(
    "Apply the factors to the activations instead of merging them",
    "numerics",
    "weight = base.weight + scale * (up @ down)\ny = F.linear(x, weight, base.bias)",
    "y = base(x) + scale * F.linear(F.linear(x, down), up)",
)


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # a forward method to change: not worth it below 3 % of the step
) -> Iterator[Finding]:
    found = merged(price.ops)
    if not found:
        return
    rows = np.unique(np.concatenate([one.rows for one in found]))
    # What comes instead: at the layers' own rate for operations, and at that of the elementwise ops for what is read
    # and written.
    products = [(one.layer, *2 * (-_INSTEAD * one.products,)) for one in found]
    activations = [(one.elementwise, -one.activations, 0.0) for one in found]
    one = Equivalent(
        parts=((rows, 1.0, 1.0), *products, *activations),
        how=_HOW,
        ops="long",
        spent_us=price.spent_us(rows),
        shown=rows_of(*(one.product for one in found)),
    )
    known = worth(price, lines, one, min_share)
    if known and known.saving and known.saving.low_us:
        weights = len(found) / price.ops.steps.count
        yield known.finding(
            f"A step computes {plural(weights, 'full weight')}{known.at} from factors of rank "
            f"{found[0].rank}: with the gradients that takes {known.spent}.",
            {"weights": weights, "rank": found[0].rank, "merged_us": known.spent_us},
            _FIX,
        )


_LINEAR, _FACTORS = [[64, 384], [512, 384]], [[512, 8], [8, 384]]


def _drawn(factors: list[list[int]] = _FACTORS, base: tuple[int, ...] = (512, 8)) -> Drawing:
    """An adapter that is merged (P, M, A) for its layer (L), with nodes; base: the first gradient that is stored."""
    whole = [512, 384]
    ops: dict[str, Any] = {
        "P": op("matmul", *factors, number=1),
        "M": op("mul", whole, number=2),
        "A": op("add", whole, whole, number=3),
    }
    ops |= {"L": op("linear", *_LINEAR, number=4), "R": op("relu", [64, 512], number=5)}
    named = zip("ZYXWV", ("Relu", "Addmm", "Add", "Mul", "Mm"), strict=True)
    ops |= {letter: node(5 - at, f"{name}Backward0") for at, (letter, name) in enumerate(named)}
    ops |= {"G": op("mm", [64, 512], [512, 384]), "H": op("mm", [512, 64], [64, 384])}
    stored = [Ev(GRADIENT_STORE, dims=[list(shape)], launches="") for shape in (base, (8, 384))]
    return two_steps(
        "[P ][M ][A ][L     ][R ][Z][Y         ][X][W ][V ][S][T]",
        "                            [G   ][H  ]",
        **ops,
        S=stored[0],
        T=stored[1],
    )


EXAMPLES = [
    Example(
        "an adapter is merged with its layer in each pass",
        _drawn(),
        saves_us=(1500, 3300),
        says=("1 full weight", "rank 8"),
    ),
    Example("factors as wide as the weight", _drawn([[512, 256], [256, 384]], (512, 256)), None, near_miss=True),
    Example("the factors are activations, of which no gradient is stored", _drawn(base=(512,)), None),
]

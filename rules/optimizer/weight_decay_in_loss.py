"""The loss sums the squares of weights, as `weight_decay` would.

## What it looks at
Ops of the forward pass that square a whole parameter (or take its norm, and square that) and sum the result, and that
the backward pass goes through. Profiles do not record which tensors an op reads; `advisor run` observes it in separate
steps.

## Why it costs time
The penalty reads every weight in the forward pass, and its backward pass makes a gradient as large as the weights,
which is added to that of the loss: four or five passes over all of them. For embedding tables, of which a batch reads
a few rows, that is more than the model itself.

## How to fix it
The gradient of `factor * weight.square().sum()` is `2 * factor * weight`, which is what `weight_decay=2 * factor` adds
in `SGD` and `Adam`, in the step that reads the weights anyway. Give parameters without a penalty a group of their own
with `weight_decay=0`.

## When to leave it
`AdamW` decays weights apart from the gradient, which trains differently. Where the value of the penalty is logged,
compute it without gradients in the steps that log it. Gradients that are clipped by their norm no longer contain the
penalty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import Example, Finding, Fix, Ints, Lines, ObservedOps, Price, backward_of, constant, with_backward

from ..cheaper_equivalents._equivalent import Equivalent, worth
from ..shared._examples import node, observed, op, two_steps
from ..shared._places import longest
from ..shared._words import plural

# With what the optimizer's step takes longer, and what adding these gradients to those of the loss took.
_SAVED = constant("share.weight_decay")
_HOW = (
    "the least and the most of these ops' time that `weight_decay` saved in measurements, the optimizer's step included"
)


def check(
    price: Price,
    seen: ObservedOps,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # one argument to set; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events = price.ops.events
    chains = [chain for chain in _chains(seen) if len(backward_of(events, chain))]
    if not chains:
        return
    rows = np.unique(np.concatenate(chains))
    first = np.array(sorted({int(chain[0]) for chain in chains}), np.int64)
    one = Equivalent(
        parts=((with_backward(events, rows), _SAVED.low, _SAVED.high),),
        how=_HOW,
        timed_on_device=False,
        shown=longest(events, first),
    )
    if known := worth(price, lines, one, min_share):
        each = len(first) / price.ops.steps.count
        yield known.finding(
            f"The loss sums the squares of {plural(round(each), 'parameter')}{known.at}: {known.spent} as recorded, "
            f"backward pass included.",
            {"parameters": each, "spent_us": known.spent_us},
            _DECAY,
        )


def _chains(seen: ObservedOps) -> Iterator[Ints]:
    """The rows of each chain in each step in which all of it is known."""
    for at in seen.places:
        for chain in seen.seen.penalties:
            rows = at[np.asarray(chain, np.int64)]
            if (rows >= 0).all():
                yield rows


_DECAY = Fix(
    "Set `weight_decay=2 * factor` instead of adding the penalty to the loss",
    "numerics",
    "loss = loss + factor * sum(p.square().sum() for p in model.parameters())\noptimizer = Adam(model.parameters())",
    "optimizer = Adam(model.parameters(), weight_decay=2 * factor)",
)
_TABLE = [20000, 16]
_OPS: dict[str, Any] = {
    "F": op("linear", [64, 64], [64, 64], [64], number=1),
    "S": op("square", _TABLE, number=2),
    "M": op("sum", _TABLE, number=3),
    "X": node(3, "SumBackward0"),
    "Y": node(2, "PowBackward0"),
    "Z": node(1),
}
_LANE = "[F  ][S    ][M  ][X   ][Y        ][Z  ][O   ]"


def _facts(*penalties: list[int]) -> dict[str, Any]:
    return observed("linear square sum", [[], [], [1]], penalties=list(penalties))


EXAMPLES = [
    Example(
        "the squares of an embedding table in the loss",
        two_steps(_LANE, **_OPS),
        saves_us=(1500, 3800),
        facts=_facts([1, 2]),
        says=("squares of 1 parameter",),
    ),
    Example("the squares of activations", two_steps(_LANE, **_OPS), None, _facts(), near_miss=True),
    Example(
        "no backward pass goes through it: a log",
        two_steps(_LANE, **(_OPS | {"S": op("square", _TABLE), "M": op("sum", _TABLE)})),
        facts=_facts([1, 2]),
        near_miss=True,
    ),
    Example("nobody looked", two_steps(_LANE, **_OPS), None, {}, skipped="was not recorded"),
]

"""Distributions check their arguments in every step.

## What it looks at
The op `aten::_is_all_true`, by which `torch.distributions` asks whether all numbers meet a constraint: each parameter
when a distribution is made, each value that `log_prob` gets. With it the comparisons directly before it and
the read of its result directly after it.

## Why it costs time
A mixture of six normal distributions, made and evaluated once, runs five checks of four ops and some Python each, on a
few numbers: what they cost is their number. On a GPU each of them also waits for the device: Python needs the answer.

## How to fix it
`torch.distributions.Distribution.set_default_validate_args(False)` once at the start of the script, or
`validate_args=False` for a distribution that is made in the loop. `python -O` turns the checks off as well, with all
`assert` statements.

## When to leave it
While a model is being developed: without the checks a negative scale or a NaN goes on into the loss unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import D2H_PAGEABLE, FORWARD, Drawing, Ev, Events, Example, Finding, Ints, Lines, Price, draw

from ...shared._examples import op
from ...shared._runs_of_ops import priced
from ...shared._words import plural
from ._checked_values import UNCHECKED

_ASKS = "aten::_is_all_true"
# What reads the answer: the next op.
_READS = "aten::is_nonzero"
# What constraints compare with, and how they join what they found; arithmetic before that may be the distribution's.
_COMPARES = frozenset(
    f"aten::{name}"
    for name in (
        *("eq", "ne", "ge", "gt", "le", "lt", "isfinite", "all", "any", "logical_and", "bitwise_and", "__and__"),
        *("reshape", "view", "flatten"),
    )
)
_CLAIMS = ("forward", "other_ops", "host")
_HOW = "low: the checks' ops and the Python between them; high: with as much around them, up to the next ops"


def check(
    price: Price,
    lines: Lines | None,
    *,
    min_share: float = 0.03,  # one line to add; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    if found := priced(price, lines, _checks(price.ops.events, price.ops.outermost), _CLAIMS, _HOW, min_share):
        yield found.finding(
            f"Distributions check their arguments{found.at}, {plural(found.times, 'check')} in each step: "
            f"{found.spent}.",
            {"checks": found.times, "spent_us": found.spent_us},
            UNCHECKED,
        )


def _checks(events: Events, outer: Ints) -> tuple[Ints, Ints]:
    """Places among these ops of the first and last op of each check."""
    asks, reads, compares = (events.exactly(*names)[outer] for names in ((_ASKS,), (_READS,), _COMPARES))
    last = np.flatnonzero(reads[1:] & asks[:-1]) + 1
    first = last - 1
    while (before := (first > 0) & compares[np.maximum(first - 1, 0)]).any():
        first = first - before
    return first, last


_STEPS = """
    step   [1                                  ][2                                  ]
    cpu    [F   ][G][A][R]    [E][H][A][R]  [B ] [F   ][G][A][R]    [E][H][A][R]  [B ]
    """
_CHECKED: dict[str, Any] = {
    "G": op("gt", [64, 6], []),
    "E": op("eq", [64, 6], [64, 6]),
    "H": op("all", [64, 6]),
    "A": op("_is_all_true", [64, 6]),
    "R": op("is_nonzero", []),
}


def _drawn(**changed: Ev) -> Drawing:
    """Two steps, each with two checks: of a scale, and of the values that `log_prob` gets."""
    return draw(_STEPS, us=100, **_CHECKED | changed)


EXAMPLES = [
    Example(
        "a distribution is made in each step, and its `log_prob` computed",
        _drawn(B=FORWARD),
        saves_us=(1900, 2900),
        says=("2 checks in each step",),
    ),
    Example(
        "a condition of the script's own: nothing asks for all of them",
        _drawn(A=op("any", [64, 6]), B=FORWARD),
        near_miss=True,
    ),
    Example(
        "a check that goes on without an answer: a compiled one",
        _drawn(R=op("logical_not", [64]), B=FORWARD),
        near_miss=True,
    ),
    Example(
        "beside a GPU, whose answer the host waits for",
        draw(
            """
            step   [1                                ][2                                ]
            cpu    [F ][G][A][R           ][B    ]    [F ][G][A][R           ][B    ]
            gpu 7   [K           ][E][E]  [C][K   ]    [K           ][E][E]  [C][K   ]
            """,
            us=100,
            G=op("gt", [64, 6], [], launches="kernel"),
            A=op("_is_all_true", [64, 6], launches="kernel"),
            R=Ev("aten::is_nonzero", launches="memcpy", blocks=True),
            C=D2H_PAGEABLE,
        ),
        saves_us="unknown",
        says=("1 check in each step",),
    ),
    Example("distributions whose checks are off", _drawn(A=FORWARD, R=FORWARD, B=FORWARD)),
]

"""DistributedDataParallel copies gradients back from its buckets.

## What it looks at
The copies that DistributedDataParallel makes at the end of each backward pass, from its buckets into the gradients of
the parameters.

## Why it costs time
Gradients are gathered in buckets, reduced over all ranks, and copied back: each of them is read and written once more,
and stored twice in memory.

## How to fix it
`DistributedDataParallel(model, gradient_as_bucket_view=True)`: the gradients are then views into the buckets.

## When to leave it
Code that calls `detach_()` on gradients, or keeps a gradient beyond the next backward pass, which overwrites it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import Ev, Example, Finding, Fix, Price, Settings, StepOps, Treatment, draw, edits

from ..shared._places import set_at
from ..shared._words import each_step, plural

# Not confirmed: of seven networks on a CPU, four perceptrons became 3 to 9 % faster with views, the others did not.
_COPY = "reducer::copy_bucket_to_grad"


def check(
    recorded: StepOps,
    price: Price,
    settings: Settings | None,
    *,
    min_share: float = 0.01,  # one argument; below 1 % of the step the gain cannot be seen
) -> Iterator[Finding]:
    copies = recorded.events.named(_COPY)
    if not copies.any():
        return
    rows = np.flatnonzero(copies & recorded.links.inside)
    claims, spent_us = price.claims("backward"), price.spent_us(rows)
    how = "high: the step without these copies; low: nothing, as in three of seven networks on a CPU"
    saving = price.saving([], [edits.remove(rows)], claims, how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    yield Finding(
        message=(
            f"DistributedDataParallel copies {plural(len(rows) / recorded.steps.count, 'gradient')} a step back out of "
            f"its buckets: {each_step(price, spent_us)}."
        ),
        saving=saving,
        where=set_at(settings, "ddp"),
        facts={"copies": len(rows) / recorded.steps.count, "copy_us": spent_us},
        fix=Fix(
            "Set `gradient_as_bucket_view=True`",
            "exact",
            "DistributedDataParallel(model)",
            "DistributedDataParallel(model, gradient_as_bucket_view=True)",
            Treatment("ddp", {"gradient_as_bucket_view": True}),
        ),
        claims=claims,
    )


_BACK = Ev("torch.distributed.ddp.reducer::copy_bucket_to_grad", times=4, launches="")
_STEPS = """
    step   [1                          ][2                          ]
    cpu    [F   ][B           ]          [F   ][B           ]
    cpu               [C    ]                       [C    ]
    """

EXAMPLES = [
    Example(
        "four gradients are copied back", draw(_STEPS, us=100, C=_BACK), saves_us=(0, 800), says=("4 gradients a step",)
    ),
    Example(
        "copies of small account",
        draw(_STEPS, us=100, C=Ev(_BACK.name, times=4, fill=0.01, launches="")),
        near_miss=True,
    ),
    Example(
        "gradients are views into the buckets",
        draw(_STEPS, us=100, C=Ev("torch::distributed::reducer::mul_out", launches="")),
    ),
]

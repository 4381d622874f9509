"""Metrics of the outputs are computed in every step.

## What it looks at
Ops whose results no op of the training reads, and that work on what the forward pass of the same step computed: they
end in single numbers for Python, such as an accuracy, a PSNR or the norm of an activation. Profiles do not record which
tensors an op reads; `advisor run` observes it in separate steps. Ops whose results leave the step as anything larger
(an array for SciPy, a tensor that is kept, a buffer that is updated) do not count, because they may return.

## Why it costs time
A metric is printed every few dozen steps or averaged over an epoch, but computed as often as the loss. One that filters
images, compares all pairs or sorts scores takes as long as a layer of the model.

## How to fix it
Compute it in the steps that report it: `if step % 20 == 0:` around the metric. An average over every tenth step of an
epoch differs little from one over all of them.

## When to leave it
Where Python decides by the number in every step: a learning rate that follows it, a step that is skipped, samples that
are drawn by it. Where the average over all samples is the result, as in an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import Drawing, Example, Finding, Fix, Lines, Price, SideResults

from ..cheaper_equivalents._equivalent import Equivalent, worth
from ..shared._examples import node, observed, op, two_steps
from ..shared._places import longest

# How often the metric is computed where it is computed less often.
_EVERY = 10


def check(
    price: Price,
    side: SideResults,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # a number to look at less often: not worth it below 5 % of the step
) -> Iterator[Finding]:
    rows = side.ops
    if not len(rows):
        return
    one = Equivalent(
        parts=((rows, 1 - 1 / _EVERY, 1.0),),
        how=f"low: computed in every {_EVERY}th step; high: never",
        claims=("forward", "other_ops"),
        shown=longest(price.ops.events, rows),
        at_most="medium",  # Python may decide by the number
    )
    if known := worth(price, lines, one, min_share):
        yield known.finding(
            f"Ops{known.at} compute numbers that no op of the training reads, such as a metric or a log: "
            f"{known.spent}.",
            {"metrics_us": known.spent_us, "ops": len(rows) / price.ops.steps.count},
            Fix(
                f"Compute the metrics in every {_EVERY}th step",
                "exact",
                "ssim.update(structural_similarity(output, target))",
                f"if step % {_EVERY} == 0:\n    ssim.update(structural_similarity(output, target))",
            ),
        )


_IMAGE = [8, 64, 64]
_NAMES = "linear l1_loss sub pow mean item"


def _drawn(**changed: Any) -> Drawing:
    """A layer (F), the loss (L), its node (X) and the layer's (Z), then a metric: S, P, M, I."""
    ops: dict[str, Any] = {
        "F": op("linear", _IMAGE, [64, 64], [64], number=1),
        "L": op("l1_loss", _IMAGE, _IMAGE, number=2),
        "X": node(2),
        "Z": node(1),
        "S": op("sub", _IMAGE, _IMAGE),
        "P": op("pow", _IMAGE),
        "M": op("mean", _IMAGE),
        "I": op("item", []),
    }
    return two_steps("[F   ][L ][X ][Z   ][S    ][P    ][M ][I]", **(ops | changed))


def _facts(*leaving: int, onward: list[tuple[int, int]] | None = None) -> dict[str, Any]:
    waits = [[], [1], [2], [1], [1], [1]]
    return observed(_NAMES, waits, leaving=list(leaving), onward=onward or [])


_TRAINED: dict[str, Any] = {
    "F": op("linear", _IMAGE, [64, 64], [64], number=1),
    "S": op("sub", _IMAGE, _IMAGE, number=2),
    "P": op("pow", _IMAGE, number=3),
    "M": op("mean", _IMAGE, number=4),
    **{word: node(4 - at) for at, word in enumerate("XYWZ")},
    "I": op("item", []),
}

EXAMPLES = [
    Example(
        "an error of the images in every step",
        _drawn(),
        saves_us=(1400, 2100),
        facts=_facts(),
        says=("no op of the training reads",),
    ),
    Example("the squares go to NumPy, which may return them", _drawn(), None, _facts(3), near_miss=True),
    Example("the next step's loss reads the number", _drawn(), facts=_facts(onward=[(4, 1)]), near_miss=True),
    Example(
        "the error of the images is the loss, and printed",
        two_steps("[F   ][S    ][P    ][M ][X][Y][W][Z ][I]", **_TRAINED),
        facts=observed("linear sub pow mean item", [[], [1], [1], [1], [1]], leaving=[]),
        near_miss=True,
    ),
    Example("nobody looked", _drawn(), None, {}, skipped="was not recorded"),
]

"""Metrics of outputs, or statistics of weights, are computed in every step.

## What it looks at
Ops whose results no op of the training reads, and that work on what the forward pass of the same step computed: they
end in single numbers for Python, such as an accuracy, a PSNR or the norm of an activation. Profiles do not record which
tensors an op reads; `advisor run` observes it in separate steps. Ops whose results leave the step as anything larger
(an array for SciPy, a tensor that is kept, a buffer that is updated) do not count, because they may return.

Likewise ops on weights and gradients alone that end in a tensor which is only kept and holds an eighth of their numbers
at most, or counts: histograms, quantiles, a norm of each layer.

## Why it costs time
A metric is printed every few dozen steps or averaged over an epoch, but computed as often as the loss. One that filters
images, compares all pairs or sorts scores takes as long as a layer of the model. Histograms of all weights go through
them several times, in several calls for each tensor.

## How to fix it
Compute it in the steps that report it: `if step % 20 == 0:` around the metric. An average over every tenth step of an
epoch differs little from one over all of them. Likewise `if step % 100 == 0:` around `writer.add_histogram(...)`, or
`wandb.watch(model, log_freq=100)`.

## When to leave it
Where Python decides by the number in every step: a learning rate that follows it, a step that is skipped, samples that
are drawn by it. Where the average over all samples is the result, as in an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import Drawing, Example, Finding, Fix, Ints, Lines, Price, SideResults, WeightStatistics

from ..cheaper_equivalents._equivalent import Equivalent, Part, worth
from ..shared._examples import node, observed, op, two_steps
from ..shared._places import longest

# How often the metric is computed where it is computed less often.
_EVERY = 10


def check(
    price: Price,
    side: SideResults,
    statistics: WeightStatistics,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # a number to look at less often: not worth it below 5 % of the step
) -> Iterator[Finding]:
    if len(rows := side.ops) and (known := worth(price, lines, _rarely(price, rows, ((rows, *_SAVED),)), min_share)):
        yield known.finding(
            f"Ops{known.at} compute numbers that no op of the training reads, such as a metric or a log: "
            f"{known.spent}.",
            {"metrics_us": known.spent_us, "ops": len(rows) / price.ops.steps.count},
            _METRICS,
        )
    if len(rows := statistics.ops):
        # On a host what Python does between them goes, too.
        what = rows if price.on_device else statistics.spans
        if known := worth(price, lines, _rarely(price, rows, ((what, *_SAVED),)), min_share):
            yield known.finding(
                f"Ops{known.at} compute statistics of weights or gradients that no op reads, such as histograms: "
                f"{known.spent}.",
                {"statistics_us": known.spent_us, "ops": len(rows) / price.ops.steps.count},
                _STATISTICS,
            )


def _rarely(price: Price, rows: Ints, parts: tuple[Part, ...]) -> Equivalent:
    return Equivalent(
        parts=parts,
        how=f"low: computed in every {_EVERY}th step; high: never",
        claims=("forward", "backward", "other_ops", "host"),
        shown=longest(price.ops.events, rows),
        at_most="medium",  # Python may decide by the numbers
    )


_SAVED = (1 - 1 / _EVERY, 1.0)
_METRICS = Fix(
    f"Compute the metrics in every {_EVERY}th step",
    "exact",
    "ssim.update(structural_similarity(output, target))",
    f"if step % {_EVERY} == 0:\n    ssim.update(structural_similarity(output, target))",
)
_STATISTICS = Fix(
    f"Compute the statistics in every {_EVERY}th step, or more seldom (`log_freq` of `wandb.watch`)",
    "exact",
    "kept.append([torch.histc(p.grad, 64) for p in model.parameters()])",
    f"if step % {_EVERY} == 0:\n    kept.append([torch.histc(p.grad, 64) for p in model.parameters()])",
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


_LAYER: dict[str, Any] = {
    "F": op("linear", _IMAGE, [64, 64], [64], number=1),
    "L": op("l1_loss", _IMAGE, _IMAGE, number=2),
    "X": node(2),
    "Z": node(1),
}
_WATCHED: dict[str, Any] = {
    **{word: op(name, [64, 64]) for word, name in (("S", "min"), ("P", "max"), ("H", "histc"))},
    "I": op("item", []),
}


def _watched(*statistics: int) -> dict[str, Any]:
    return observed("linear l1_loss min max item histc", [[], [1], [], [], [1], []], leaving=[5], statistics=statistics)


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
    Example(
        "histograms of a weight and its gradient in every step",
        two_steps("[F   ][L ][X ][Z   ][S  ][P  ][I][H    ]", **(_WATCHED | _LAYER)),
        saves_us=(1700, 2000),
        facts=_watched(2, 3, 4, 5),
        says=("statistics of weights or gradients",),
    ),
    Example(
        "their numbers may clip the gradients",
        two_steps("[F   ][L ][X ][Z   ][S  ][P  ][I][H    ]", **(_WATCHED | _LAYER)),
        facts=_watched(),
        near_miss=True,
    ),
    Example("nobody looked", _drawn(), None, {}, skipped="was not recorded"),
]

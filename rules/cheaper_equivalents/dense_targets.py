"""The loss multiplies one-hot targets instead of taking class indices.

## What it looks at
Cross entropies written by hand, or on probabilities, whose targets the step builds from class indices (`one_hot`,
`scatter_`), with label smoothing or without: the ops that build the targets, their product with the log-probabilities,
its sum, and their part of the backward pass. That nothing else reads the targets is observed by `advisor run` in one
step.

## Why it costs time
For 1,024 words and a vocabulary of 2,000 the targets are two million numbers, of which one in 2,000 carries
information. Building, smoothing and multiplying them takes five or six passes over tensors as large as the logits, each
of them in new memory, and one more in the backward pass. Given indices, a loss reads only the numbers that it needs.

## How to fix it
`F.cross_entropy(logits, labels, label_smoothing=0.1)`, or without smoothing `F.cross_entropy(logits, labels)`. If the
model returns log-probabilities, `F.nll_loss(log_p, labels)`; smoothed, `0.9 * F.nll_loss(log_p, labels) - 0.1 *
log_p.mean(1).mean()`.

## When to leave it
Targets that are dense by nature: a teacher's probabilities, mixtures of two labels. `label_smoothing` spreads its
share over all classes including the true one: a share `e` that only the others got is `e * classes / (classes - 1)`.
Sums are computed in another order, so results differ in the last digits; `kl_div` differs by a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from advisor.api import (
    BACKWARD,
    ELEMENTWISE,
    FORWARD,
    GEMM,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    Readers,
    constant,
    draw,
)

from ..shared._words import count
from ._equivalent import Equivalent, rows_of, worth
from ._targets import DenseTargets, dense_targets, instead_ns, quickest_ns

CONFIRMED = "measured pair on a CPU: labels smoothed by hand against cross_entropy(label_smoothing=0.1)"

# Targets of fewer numbers take no longer than the calls.
_LEAST_NUMBERS = 16_384
# What the calls of such a loss and of its backward pass take beside its softmax, of 16 to 12,800 numbers on one core.
_CALLS_US, _CALLS_PLAIN_US = constant("calls.smoothed_loss_us").range, constant("calls.plain_loss_us").range


_HOW = (
    "high: these ops and their backward pass, minus the passes over the logits that the loss makes instead; low: each "
    "op in its shortest time, since another op may then pay for allocating memory"
)


def check(
    price: Price,
    lines: Lines | None,
    readers: Readers,
    *,
    min_share: float = 0.03,  # one call to change; below 3 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    events, ops = price.ops.events, price.ops.outermost
    found = [one for one in dense_targets(events, ops, readers) if math.prod(one.shape) >= _LEAST_NUMBERS]
    if not found:
        return
    largest = max(found, key=lambda one: math.prod(one.shape))
    if known := worth(price, lines, _equivalent(price, found, largest), min_share):
        yield known.finding(
            f"{count(math.prod(largest.shape) // largest.classes)} labels are expanded{known.at} to one-hot "
            f"vectors of {count(largest.classes)} numbers each{', smoothed' * largest.smoothed} and multiplied with "
            f"log-probabilities: {known.spent}{', backward pass included' * bool(largest.nodes)}.",
            {
                "losses": len(found) / price.ops.steps.count,
                "classes": largest.classes,
                "numbers": math.prod(largest.shape),
                "spent_us": known.spent_us,
            },
            _SMOOTHED if largest.smoothed else _PLAIN,
        )


def _equivalent(price: Price, found: list[DenseTargets], largest: DenseTargets) -> Equivalent:
    """These ops, less what the loss does instead.

    Large tensors are new memory again and again, and who asks for it first in a step waits for the system. low: that
    waiting stays, with other ops, as where each of these is as quick as its quickest; high: it goes with them.
    """
    events, steps = price.ops.events, price.ops.steps.count
    rows = rows_of(*sorted({row for one in found for row in (*one.rows, *one.nodes)}))
    fewest_ns, most_ns = instead_ns(events, found)
    all_ns = max(float(events.dur_ns[rows].sum()), 1.0)
    least, most = (max(ns, 0.0) / all_ns for ns in (quickest_ns(events, rows) - most_ns, all_ns - fewest_ns))
    calls = [_CALLS_US if one.smoothed else _CALLS_PLAIN_US for one in found]
    least_us, most_us = (sum(ends) / steps for ends in zip(*calls, strict=True))
    return Equivalent(
        parts=((rows, least, most),),
        how=_HOW,
        instead_us=(least_us, most_us),
        timed_on_device=False,
        shown=rows_of(largest.first, *largest.rows),
    )


_SMOOTHED = Fix(
    "Use `F.cross_entropy` with `label_smoothing`",
    "numerics",
    "wanted = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes\n"
    "loss = -(wanted * F.log_softmax(logits, dim=1)).sum(1).mean()",
    "loss = F.cross_entropy(logits, labels, label_smoothing=smoothing)",
)
_PLAIN = Fix(
    "Pass class indices to `F.cross_entropy`",
    "numerics",
    "loss = -(F.one_hot(labels, classes) * F.log_softmax(logits, dim=1)).sum(1).mean()",
    "loss = F.cross_entropy(logits, labels)",
)


def _op(name: str, *dims: list[int], **args: Any) -> Ev:
    return Ev(f"aten::{name}", dims=[*dims], **args)


_WIDE, _LABELS = [512, 1000], [512]
# Layers (F), the targets (H, T, A), the loss (L, P, S) with the product's node (N), the backward pass (B).
_STEPS = """
    step   [1                                       ][2                                       ]
    cpu    [F][H    ][T   ][A ][L ][P   ][S ][N ][B   ] [F][H    ][T   ][A ][L ][P   ][S ][N ][B   ]
    """
_NUMBERED = {"Sequence number": 5, "Fwd thread id": 0}
_OPS: dict[str, Any] = {
    "F": FORWARD,
    "H": _op("one_hot", _LABELS, []),
    "T": _op("to", _WIDE),
    "A": _op("add", _WIDE, []),
    "L": _op("log_softmax", _WIDE),
    "P": Ev("aten::mul", dims=[_WIDE, _WIDE], args=_NUMBERED),
    "S": _op("sum", _WIDE),
    "N": Ev("autograd::engine::evaluate_function: MulBackward0", args=_NUMBERED | {"Fwd thread id": 1}),
    "B": BACKWARD,
}


def _seen(*names: str, waits: list[list[int]]) -> dict[str, Any]:
    known = [f"aten::{name}" for name in names]
    index = list(dict.fromkeys(known))
    return {"reused": {"names": index, "ops": [index.index(name) for name in known], "waits": waits}}


_FEW = {"H": _op("one_hot", [64], []), "P": _op("mul", [64, 10], [64, 10])}
_WAITS: list[list[int]] = [[], [], [1], [1], [4], [1, 2], [1]]
_SMOOTH = _seen("linear", "one_hot", "to", "add", "log_softmax", "mul", "sum", waits=_WAITS)

EXAMPLES = [
    Example(
        "labels smoothed by hand",
        draw(_STEPS, us=100, **_OPS),
        facts=_SMOOTH,
        saves_us=(1500, 2700),
        says=("512 labels", "1,000 numbers each, smoothed"),
    ),
    Example(
        "plain labels",
        draw(_STEPS, us=100, **(_OPS | {"A": _op("neg", _WIDE)})),
        facts=_seen("linear", "one_hot", "to", "neg", "log_softmax", "mul", "sum", waits=_WAITS),
        saves_us=(2600, 3100),
        says=("1,000 numbers each and",),
    ),
    Example(
        "labels scattered into a tensor beside a GPU",
        draw(
            """
            step   [1                                ][2                                ]
            cpu    [F][Z ][H ][L ][P ][S ][B   ]       [F][Z ][H ][L ][P ][S ][B   ]
            gpu 7    [K ][k  ][k ][K  ][k   ][k ][K ]    [K ][k  ][k ][K  ][k   ][k ][K ]
            """,
            us=100,
            F=Ev(FORWARD.name, launches="kernel"),
            Z=_op("full_like", _WIDE, launches="kernel"),
            H=_op("scatter_", _WIDE, [], [512, 1], launches="kernel"),
            L=_op("log_softmax", _WIDE, launches="kernel"),
            P=_op("kl_div", _WIDE, _WIDE, launches="kernel"),
            S=_op("div", [], launches="kernel"),
            B=Ev(BACKWARD.name, launches="kernel"),
            K=GEMM,
            k=ELEMENTWISE,
        ),
        facts=_seen(
            "linear", "full_like", "scatter_", "log_softmax", "kl_div", "div", waits=[[], [], [1], [3], [1, 2], [1]]
        ),
        saves_us=(0, 1500),
    ),
    Example(
        "a teacher's probabilities",
        draw(_STEPS, us=100, **(_OPS | {"H": _op("softmax", _WIDE)})),
        facts=_seen("linear", "softmax", "to", "add", "log_softmax", "mul", "sum", waits=_WAITS),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "two labels are mixed",
        draw(_STEPS, us=100, **(_OPS | {"A": _op("add", _WIDE, _WIDE)})),
        facts=_SMOOTH,
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "the targets are read once more",
        draw(_STEPS, us=100, **(_OPS | {"B": _op("argmax", _WIDE)})),
        facts=_seen(*("linear", "one_hot", "to", "add", "log_softmax", "mul", "sum", "argmax"), waits=[*_WAITS, [4]]),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "ten classes",
        draw(
            _STEPS,
            us=100,
            **(_OPS | {name: Ev(_OPS[name].name, dims=[[64, 10]]) for name in "TALS"} | _FEW),
        ),
        facts=_SMOOTH,
        saves_us=None,
        near_miss=True,
    ),
    Example("nobody looked what reads them", draw(_STEPS, us=100, **_OPS), saves_us=None, near_miss=True),
    Example(
        "indices",
        draw(_STEPS, us=100, **(_OPS | {"P": _op("cross_entropy_loss", _WIDE, _LABELS), "H": FORWARD})),
        facts=_seen("linear", "to", "add", "cross_entropy_loss", waits=[[], [], [1], [1]]),
        saves_us=None,
    ),
]

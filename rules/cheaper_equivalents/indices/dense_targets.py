"""The loss multiplies one-hot targets instead of taking class indices.

## What it looks at
Cross entropies written by hand, or on probabilities, whose targets the step builds from class indices (`one_hot`,
`scatter_`), with label smoothing or without: the ops that build the targets, their product with the log-probabilities,
its sum, and their part of the backward pass. `advisor run` observes in one step that nothing else reads the targets.

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

from advisor.api import FORWARD, Drawing, Example, Finding, Fix, Lines, Price, Readers

from ...shared._examples import node, observed, op, two_steps
from ...shared._words import count
from .._equivalent import Equivalent, rows_of, worth
from ._targets import DenseTargets, dense_targets, instead_ns, quickest_ns

CONFIRMED = "measured pair on a CPU: labels smoothed by hand against cross_entropy(label_smoothing=0.1)"

# Targets of fewer numbers take no longer than the calls.
_LEAST_NUMBERS = 16_384

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
    calls = [price.added.calls_us("op_calls.smoothed_loss" if one.smoothed else "op_calls.plain_loss") for one in found]
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


_WIDE, _LABELS = [512, 1000], [512]


def _drawn(shape: list[int] = _WIDE, **changed: Any) -> Drawing:
    """Layers (F), targets (H, T, A), the loss (L, P, S) with the product's node (N), the backward pass (B)."""
    ops: dict[str, Any] = {
        "H": op("one_hot", shape[:1]),
        "T": op("to", shape),
        "A": op("add", shape),
        "L": op("log_softmax", shape),
        "P": op("mul", shape, shape, number=5),
        "S": op("sum", shape),
        "N": node(5, "MulBackward0"),
    }
    return two_steps("[F][H    ][T   ][A ][L ][P   ][S ][N ][B   ]", **(ops | changed))


_LAUNCHED: dict[str, Any] = {"launches": "kernel"}
_SCATTERED = two_steps(
    "[F][Z ][H ][L ][P ][S ][B   ]",
    gpu="  [K ][E  ][E ][K  ][E   ][E ][K ]",
    F=op("linear", **_LAUNCHED),
    Z=op("full_like", _WIDE, **_LAUNCHED),
    H=op("scatter_", _WIDE, [], [512, 1], **_LAUNCHED),
    L=op("log_softmax", _WIDE, **_LAUNCHED),
    P=op("kl_div", _WIDE, _WIDE, **_LAUNCHED),
    S=op("div", [], **_LAUNCHED),
    B=node(1, **_LAUNCHED),
)
_WAITS: list[list[int]] = [[], [], [1], [1], [4], [1, 2], [1]]
_SMOOTH = observed("linear one_hot to add log_softmax mul sum", _WAITS)

EXAMPLES = [
    Example(
        "labels smoothed by hand",
        _drawn(),
        saves_us=(900, 2100),
        facts=_SMOOTH,
        says=("512 labels", "1,000 numbers each, smoothed", "backward pass included"),
    ),
    Example(
        "plain labels",
        _drawn(A=op("neg", _WIDE)),
        saves_us=(2300, 3000),
        facts=observed("linear one_hot to neg log_softmax mul sum", _WAITS),
        says=("1,000 numbers each and",),
    ),
    Example(
        "labels scattered into a tensor beside a GPU",
        _SCATTERED,
        saves_us=(0, 1500),
        facts=observed("linear full_like scatter_ log_softmax kl_div div", [[], [], [1], [3], [1, 2], [1]]),
    ),
    Example(
        "a teacher's probabilities",
        _drawn(H=op("softmax", _WIDE)),
        facts=observed("linear softmax to add log_softmax mul sum", _WAITS),
        near_miss=True,
    ),
    Example("two labels are mixed", _drawn(A=op("add", _WIDE, _WIDE)), None, _SMOOTH, near_miss=True),
    Example(
        "the targets are read once more",
        _drawn(B=op("argmax", _WIDE)),
        facts=observed("linear one_hot to add log_softmax mul sum argmax", [*_WAITS, [4]]),
        near_miss=True,
    ),
    Example("ten classes", _drawn([64, 10]), None, _SMOOTH, near_miss=True),
    Example("nobody looked what reads them", _drawn(), None, near_miss=True, skipped="not captured by `advisor run`"),
    Example(
        "indices",
        _drawn(H=FORWARD, P=op("cross_entropy_loss", _WIDE, _LABELS)),
        facts=observed("linear to add cross_entropy_loss", [[], [], [1], [1]]),
    ),
]

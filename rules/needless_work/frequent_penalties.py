"""A gradient penalty is taken in every step.

## What it looks at
Backward passes with `create_graph=True` of whose gradient ops make one number, of nothing else, that another backward
pass starts from: the R1 penalty of a discriminator, a path length, the penalty of WGAN-GP. The pass itself, the ops on
its gradient, the later pass through its record, and the forward pass of which the gradient is taken, unless other ops
read that, too, in at least four of five steps. A gradient that is compared with targets (forces), that updates weights
(meta-learning), or that is differentiated again (equations with second derivatives) is a result of the model, and no
penalty. Which ops read the gradient is not in a trace: `advisor run` observes it in separate steps.

## Why it costs time
A penalty takes a forward pass, a backward pass that records itself, and a backward pass through both: together as much
as three or four backward passes of the loss.

## How to fix it
Take it in every 16th step, with a weight that is 16 times as large (StyleGAN2, "lazy regularization"; every 4th step
for the path length): `if step % 16 == 0:` around it.

## When to leave it
Where the derivative is what the model is trained on. A penalty that holds the norm at a number (WGAN-GP) limits a loss
that has no limit of its own: how seldom it may be taken there is to be tried, so no saving is promised.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    BackwardPasses,
    CallSites,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    ObservedOps,
    Price,
    RankRecord,
    Readers,
)

from ..cheaper_equivalents._equivalent import Equivalent, worth
from ..shared._examples import node, observed, op, two_steps
from ..shared._places import TRIED, first_line, place, set_at
from ..shared._words import often
from ._gradient_penalties import Penalty, penalties, rows_of_all

# As StyleGAN2 takes the R1 penalty of its discriminator.
_EVERY = 16
# Taken in fewer of the steps, it is taken now and then already.
_MOSTLY = 0.8
# A generator and a discriminator; with one optimizer the gradient may be what the model is for.
_ADVERSARIES = 2
_KNOWN = f"Taken in every {_EVERY}th step with {_EVERY} times the weight, it regularizes as much."
_UNKNOWN = "If it only regularizes, try it in every 4th or 16th step: what that does to the training is not known."
_FIX = Fix(
    f"Take the penalty in every {_EVERY}th step, {_EVERY} times as large",
    "semantics",
    "loss = loss + weight * gradient_penalty(discriminator, real)",
    f"if step % {_EVERY} == 0:\n    loss = loss + {_EVERY} * weight * gradient_penalty(discriminator, real)",
)


def check(
    price: Price,
    backward: BackwardPasses,
    seen: ObservedOps,
    readers: Readers | None,
    record: RankRecord | None,
    lines: Lines | None,
    *,
    min_share: float = 0.05,  # it trains differently: not worth it below 5 % of the step
) -> Iterator[Finding]:
    found = list(penalties(price.ops, backward.all, seen, readers)) if seen.seen.slopes else []
    steps = price.ops.steps.count
    if len({one.step for one in found}) < _MOSTLY * steps:
        return
    rows, alone = rows_of_all(found)
    known = record is not None and _lazily(found, record)
    stays = 1 / _EVERY
    one = Equivalent(
        parts=((rows, 1 - stays, 1 - stays),),
        how=f"the penalty's forward and backward passes in {_EVERY - 1} of {_EVERY} steps",
        instead_us=(0.0, 0.0) if known else None,
        at_most="medium" if known else "low",
    )
    if not (spent := worth(price, lines, one, min_share)):
        return
    taken = first_line(lines, np.array([each.first[0] for each in found[:TRIED]], np.int64))
    called = CallSites.compute(price.ops.trace, lines).of_rows(found[0].first) if lines else ()
    where = (*set_at(record.settings if record else None, "penalty_every"), *((taken,) if taken else ()), *called)
    message = (
        f"A gradient penalty{place(taken)} is taken {often(len(found) / steps)}: its "
        f"{'forward pass and ' if alone else ''}first- and second-order backward passes take {spent.spent}. "
    )
    finding = spent.finding(
        message + (_KNOWN if known else _UNKNOWN), {"penalties": len(found) / steps, "penalty_us": spent.spent_us}, _FIX
    )
    yield replace(finding, where=tuple(dict.fromkeys(where)))


def _lazily(found: list[Penalty], record: RankRecord) -> bool:
    """Whether it is known to do when taken seldom: one that draws slopes to zero, of one of two models that compete."""
    return len(record.optimizers) >= _ADVERSARIES and not any(one.centred for one in found)


# A forward pass (F) and the pass that takes its gradient (Z), whose derivative (D) calls a product (M); a penalty made
# of it (P, Q); the loss (L). The last pass goes through the loss (V), the penalty (X, Y) and the record (W).
_STEP = "[F   ][Z        ][P ][Q ][L   ][V   ][X ][Y ][W       ][O ]"
_INSIDE = ("         [D     ]", "          [M   ]")
_OPS: dict[str, Any] = {
    "F": op("linear", [8, 64], [64, 64], [64], number=1),
    "Z": node(1),
    "D": Ev("AddmmBackward0", args={"Sequence number": 1, "Fwd thread id": 1}),
    "M": op("mm", [8, 64], [64, 64], number=2),
    "P": op("pow", [8, 64], number=3),
    "Q": op("mean", [8, 64], number=4),
    "L": op("linear", [8, 64], [64, 64], [64], number=5),
    "V": node(5),
    "X": node(4, "MeanBackward0"),
    "Y": node(3, "PowBackward0"),
    "W": node(2, "MmBackward0"),
}
_DRAWN = two_steps(_STEP, *_INSIDE, **_OPS)
_ON_GPU = two_steps(
    _STEP,
    *_INSIDE,
    gpu="  [K    ]   [K    ][E  ][E ][K  ][K  ][E ][E ][K       ]",
    **_OPS | {word: replace(_OPS[word], launches="kernel") for word in "FMPQLVXYW"},
)
# The record of the first pass is not used: the last one goes through the loss alone.
_UNUSED = two_steps(
    "[F   ][Z        ][P ][Q ][L   ][V   ][O ]", *_INSIDE, **{k: v for k, v in _OPS.items() if k not in "XYW"}
)


def _facts(*slopes: tuple[list[int], bool], optimizers: int = 2, shared: bool = False) -> dict[str, Any]:
    """A step of these ops, of which the third and fourth work on the gradient. shared: the loss reads F, too."""
    waits = [[], [], [1], [1], [4] if shared else []]
    made = observed("linear mm pow mean linear", waits, slopes=list(slopes))
    return made | {"optimizers": [{"name": "Adam"}] * optimizers}


_PENALTY = ([2, 3], False)
EXAMPLES = [
    Example(
        "the R1 penalty of a discriminator",
        _DRAWN,
        saves_us=(3500, 4500),
        facts=_facts(_PENALTY),
        says=("forward pass and first- and second-order", "once a step", "every 16th step"),
    ),
    Example(
        "of the scores that the loss is made of, too",
        _DRAWN,
        saves_us=(2900, 4000),
        facts=_facts(_PENALTY, shared=True),
        says=("its first- and second-order",),
    ),
    Example("the same beside a GPU", _ON_GPU, saves_us=(1500, 4500), facts=_facts(_PENALTY)),
    Example("a norm that is held at one", _DRAWN, "unknown", _facts(([2, 3], True)), says=("try it in every 4th",)),
    Example("one model alone", _DRAWN, "unknown", _facts(_PENALTY, optimizers=1), says=("If it only regularizes",)),
    Example("forces that are compared with targets", _DRAWN, None, _facts(), near_miss=True),
    Example("the norm of a gradient is only looked at", _UNUSED, None, _facts(_PENALTY), near_miss=True),
    Example("nobody looked", _DRAWN, None, {}, skipped="was not recorded"),
]

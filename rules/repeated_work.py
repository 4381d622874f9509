"""Results are computed again from the same tensors within one step.

## What it looks at
Ops of the training step that compute what an earlier op of the same step had computed: the same op with the same
arguments on the same values, which nothing wrote to in between. Which tensors an op reads stands in no profile;
`advisor run` looks at it in two steps of its own. Draws of random numbers, ops that write into what they are given,
and layers that keep running statistics are never among them, nor is what a checkpoint computes again in the backward
pass or what an evaluation beside the training computes. A number of Python's in an op is not seen where it became a
tensor; what was made with it counts as new.

## Why it costs time
The work is done twice, or at each time step of a loop, for the same numbers; where gradients are taken its part of the
backward pass runs as often.

## How to fix it
Keep the first result and pass it on: let `forward` return what its caller computes once more. A weight that is made at
each use (`torch.nn.utils.parametrize`, spectral norm, an orthogonal matrix) is made once in
`with parametrize.cached():` around the passes.

## When to leave it
Where keeping the result costs more memory than there is. Gradients are then added up before the backward pass instead
of after it, so their last digits differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    BACKWARD,
    FORWARD,
    Breakdown,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Links,
    Nesting,
    Replay,
    Reused,
    Scale,
    Steps,
    Trace,
    Undilated,
    draw,
)

from ._places import place
from ._reuse import owned, reuse, saving_of
from ._unfollowed import UnfollowedForwards
from ._words import count, percent, time

CONFIRMED = "measured pairs on a CPU: an encoder that runs twice on a batch, a weight that is built at each time step"

# Of a few calls that are all overhead the profiler may have made all that there seems to be: a third has to be sure.
_SURE = 1 / 3


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    reused: Reused,
    nesting: Nesting,
    links: Links,
    undilated: Undilated,
    lines: Lines | None,
    forwards: UnfollowedForwards | None,
    replay: Replay | None,
    *,
    min_share: float = 0.03,  # a result to hand on: below 3 % of the step it is not worth another argument
) -> Iterator[Finding]:
    rows, _ = owned(trace, reused, forwards)
    if not len(rows):
        return
    firsts = np.unique(reused.first[np.isin(reused.again, rows)])
    work = reuse(trace, steps, reused, nesting, lines, rows, firsts)
    saving, claims = saving_of(work, trace, steps, breakdown, scale, nesting, links, undilated, replay)
    if saving.high_us < min_share * scale.step_us or saving.low_us < _SURE * min_share * scale.step_us:
        return
    per_step = len(rows) / steps.count
    behind = f", and {time(scale.scaled(work.backward_us))} in the backward pass" if work.backward_us else ""
    yield Finding(
        message=(
            f"{count(per_step)} ops a step{place(next(iter(work.where), None))} compute again, from the same tensors, "
            f"what the step has already: {time(scale.scaled(work.us))} of each step "
            f"({percent(work.us / steps.step_us)}){behind}."
        ),
        saving=saving,
        where=work.where,
        facts={"ops": per_step, "again_us": work.us, "backward_us": work.backward_us},
        fix=Fix(
            "Compute it once and pass it on",
            "numerics",
            "rate = model(x)\nmean, logvar = model.encode(x)",
            "rate, mean, logvar = model(x)  # forward returns what it has encoded",
        ),
        claims=claims,
    )


_STEPS = """
    step   [1                             ][2                             ]
    cpu    [A  ][C ][B  ][Z   ][Y   ][X ]   [D  ][F ][E  ][W   ][V   ][U ]
    """


def _linear(number: int) -> Ev:
    return Ev(FORWARD.name, args={"Sequence number": number, "Fwd thread id": 0})


def _relu(number: int) -> Ev:
    return Ev("aten::relu", args={"Sequence number": number, "Fwd thread id": 0})


def _backward(number: int) -> Ev:
    return Ev(BACKWARD.name, launches="", args={"Sequence number": number, "Fwd thread id": 1})


_PASSES: dict[str, Any] = {
    **{name: _linear(number) for name, number in zip("ABDE", (1, 3, 5, 7), strict=True)},
    **{name: _relu(number) for name, number in zip("CF", (2, 6), strict=True)},
    **{name: _backward(number) for name, number in zip("ZYXWVU", (3, 2, 1, 7, 6, 5), strict=True)},
}
_LAUNCHING: dict[str, Any] = {name: Ev(one.name, launches="kernel", args=one.args) for name, one in _PASSES.items()}
_NAMES = ["aten::linear", "aten::relu"]


def _facts(again: list[tuple[int, int]]) -> dict[str, Any]:
    return {"reused": {"names": _NAMES, "ops": [0, 1, 0], "again": again, "constant": []}}


EXAMPLES = [
    Example(
        "a layer runs twice on the same batch",
        draw(_STEPS, us=100, **_PASSES),
        facts=_facts([(2, 0)]),
        saves_us=(750, 1050),
        says=("1 ops a step compute again", "in the backward pass"),
    ),
    Example(
        "each result has a backward pass of its own, which goes through the first one then",
        draw(
            """
            step   [1                       ][2                       ]
            cpu    [A  ][B  ][X   ][Z   ]      [D  ][E  ][U   ][W   ]
            """,
            us=100,
            **{name: _PASSES[name] for name in "ABXZDEUW"},
        ),
        facts={"reused": {"names": _NAMES, "ops": [0, 0], "again": [(1, 0)], "constant": []}},
        saves_us=(500, 780),
    ),
    Example(
        "the same beside a GPU",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [A  ][C ][B  ][Z   ][Y   ][X ]   [D  ][F ][E  ][W   ][V   ][U ]
            gpu 7    [K  ][K ][K  ][K    ][K   ][K ]  [K  ][K ][K  ][K    ][K   ][K ]
            """,
            us=100,
            **_LAUNCHING,
            K=Ev("ampere_sgemm_128x64_tn", "kernel"),
        ),
        facts=_facts([(2, 0)]),
        saves_us=(700, 1200),
    ),
    Example(
        "a layer of the same form on another batch",
        draw(_STEPS, us=100, **_PASSES),
        facts=_facts([]),
        saves_us=None,
        near_miss=True,
    ),
    Example(
        "the observed step ran other ops than the profiled ones",
        draw(_STEPS, us=100, **_PASSES),
        facts={"reused": {"names": ["aten::conv2d"], "ops": [0, 0, 0], "again": [(2, 0)], "constant": []}},
        saves_us=None,
        near_miss=True,
    ),
    Example("nobody looked", draw(_STEPS, us=100, **_PASSES), facts={}, saves_us=None),
]

"""The same results are computed more than once within a step.

## What it looks at
Ops of the training step that compute what an earlier op of the same step has computed: the same op with the same
arguments on the same values, which nothing wrote to in between. Profiles do not record which tensors an op reads;
`advisor run` observes it in two separate steps. Random ops, ops that write to their inputs, and layers that update
running statistics are never among them, nor is what checkpointing recomputes in the backward pass or what an
evaluation shares with the training. A Python number in an op is not visible if it was converted to a tensor; what was
computed with it counts as new, except in a closure that the loop calls in addition to the optimizer's step.
Conversions by autocast count as separate ops.

## Why it costs time
The work is done twice, or at each time step of a loop, for the same numbers; where gradients are needed, its part of
the backward pass runs as often.

## How to fix it
Keep the first result and pass it on: let `forward` return what its caller would compute again. A weight that is
computed at each use (`torch.nn.utils.parametrize`, spectral norm, an orthogonal matrix) is computed once in
`with parametrize.cached():` around the passes. A closure is for `optimizer.step(closure)` alone, which returns its
loss. Autocast caches the weights that it has cast until its region ends, so put one region around a loop, not one
into each of its iterations; tensors that are not weights are cast at each use: cast those yourself.

## When to leave it
Where keeping the result needs more memory than there is. Gradients are then summed before the backward pass instead
of after it, so their last digits differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from advisor.api import (
    FORWARD,
    Ev,
    Example,
    Finding,
    Fix,
    LineCosts,
    Lines,
    Price,
    Reused,
    Source,
    UnfollowedForwards,
    draw,
    duration,
    loop_around,
)

from ..shared._examples import node, op
from ..shared._places import place
from ..shared._words import each_step, plural
from ._same_result import Reuse, owned, reuse

CONFIRMED = "measured pairs on a CPU: an encoder that runs twice on a batch, a weight that is built at each time step"

# Of a few calls that are all overhead the profiler may have made all that there seems to be: a third has to be sure.
_SURE = 1 / 3


def check(
    price: Price,
    reused: Reused,
    lines: Lines | None,
    forwards: UnfollowedForwards | None,
    costs: LineCosts | None,
    *,
    min_share: float = 0.03,  # a result to pass on: below 3 % of the step it is not worth another argument
) -> Iterator[Finding]:
    rows, _ = owned(price.ops, reused, forwards)
    if not len(rows):
        return
    work = reuse(price, reused, lines, rows, np.unique(reused.first[np.isin(reused.again, rows)]))
    if not work.is_material(price, min_share, _SURE):
        return
    message, fix = _kind(price, work, place(next(iter(work.where), None)))
    behind = f", and {duration(price.scale.scaled(work.backward_us))} in the backward pass" if work.backward_us else ""
    yield Finding(
        message=f"{message}: {each_step(price, work.us)}{behind}.",
        saving=work.saving,
        where=(*work.where, *_loop(work.where, costs)),
        facts={"ops": len(rows) / price.ops.steps.count, "recomputed_us": work.us, "backward_us": work.backward_us},
        fix=fix,
        claims=work.claims,
    )


def _loop(where: tuple[Source, ...], costs: LineCosts | None) -> tuple[Source, ...]:
    """The loop around the work, or around a call that leads to it: what is the same in all turns belongs before it."""
    around = loop_around(costs, where[0]) if where and costs is not None else None
    return (around,) if around is not None and around not in where else ()


def _kind(price: Price, work: Reuse, where: str) -> tuple[str, Fix]:
    """What is computed again, and what to do: a whole loss, what autocast converts, or ops."""
    took, steps = price.ops.events.dur_ns, price.ops.steps
    if work.passes:
        return f"A loss and its backward pass{where} are computed again from the same tensors and weights", _ONE_PASS
    if 2 * took[work.casts].sum() > took[work.rows].sum():
        tensors = plural(len(work.casts) / steps.count, "tensor")
        return f"Autocast converts {tensors} a step{where} more than once", _ONE_REGION
    ops = plural(len(work.rows) / steps.count, "op")
    return f"Each step recomputes the results of {ops}{where} from the same tensors", _ONCE


_ONCE = Fix(
    "Compute it once and reuse the result",
    "numerics",
    "rate = model(x)\nmean, logvar = model.encode(x)",
    "rate, mean, logvar = model(x)  # forward returns what it has encoded",
)
_ONE_PASS = Fix(
    "Use the loss that `optimizer.step(closure)` returns",
    "exact",
    "loss = closure()\noptimizer.step(closure)",
    "loss = optimizer.step(closure)",
)
_ONE_REGION = Fix(
    "Put one autocast region around the loop: casts of weights are cached until it ends",
    "numerics",
    'for _ in range(rounds):\n    with torch.autocast("cuda", dtype=torch.bfloat16):\n        state = model(state)',
    'with torch.autocast("cuda", dtype=torch.bfloat16):\n    for _ in range(rounds):\n        state = model(state)',
)


_STEPS = """
    step   [1                             ][2                             ]
    cpu    [A  ][C ][B  ][Z   ][Y   ][X ]   [D  ][F ][E  ][W   ][V   ][U ]
    """


_PASSES: dict[str, Any] = {
    **{name: op("linear", number=number) for name, number in zip("ABDE", (1, 3, 5, 7), strict=True)},
    **{name: op("relu", number=number) for name, number in zip("CF", (2, 6), strict=True)},
    **{name: node(number) for name, number in zip("ZYXWVU", (3, 2, 1, 7, 6, 5), strict=True)},
}
_LAUNCHING: dict[str, Any] = {name: Ev(one.name, launches="kernel", args=one.args) for name, one in _PASSES.items()}
_NAMES = ["aten::linear", "aten::relu"]


def _facts(again: list[tuple[int, int]]) -> dict[str, Any]:
    return {"reused": {"names": _NAMES, "ops": [0, 1, 0], "again": again, "constant": []}}


# A, B, D and E are calls of one layer under autocast; what it casts (t, u) and the layer itself (l, m) lie in each.
_CASTING: dict[str, Any] = {
    **{name: op("linear", number=number) for name, number in zip("ABDE", (1, 3, 6, 8), strict=True)},
    **{name: op("relu", number=number) for name, number in zip("CF", (5, 10), strict=True)},
    **{name: node(number) for name, number in zip("ZYXWVUTS", (4, 3, 2, 1, 9, 8, 7, 6), strict=True)},
    **{name: op("to", number=number) for name, number in zip("tuvw", (1, 3, 6, 8), strict=True)},
    **{name: op("linear", number=number) for name, number in zip("lmno", (2, 4, 7, 9), strict=True)},
}
_SHORT_CASTS: dict[str, Any] = {key: replace(_CASTING[key], fill=0.05) for key in "tuvw"}
_CAST_AGAIN: dict[str, Any] = {"names": _NAMES, "ops": [0, 0, 1], "casts": [(1, 0, 0, 0)]}
# Z and V go backward through what was computed before the step began, Y and W through a second computation of it.
_CLOSURE = """
    step   [1                             ][2                             ]
    cpu    [Z   ][B  ][R][Y   ][O][A  ][R] [V   ][D  ][R][W   ][O][C  ][R]
    """
_CALLED: dict[str, Any] = {
    **{name: op("linear", number=number) for name, number in zip("BADC", (2, 3, 4, 5), strict=True)},
    **{name: node(number) for name, number in zip("ZYVW", (1, 2, 3, 4), strict=True)},
    "R": Ev("aten::ones_like"),
}
_CALLED_TWICE: dict[str, Any] = {
    "names": ["aten::linear", "aten::ones_like"],
    "ops": [0, 1, 0, 1],
    "again": [(0, -2)],
    "constant": [],
}

EXAMPLES = [
    Example(
        "a layer runs twice on the same batch",
        draw(_STEPS, us=100, **_PASSES),
        facts=_facts([(2, 0)]),
        saves_us=(750, 1050),
        says=("recomputes the results of 1 op", "in the backward pass"),
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
        "a layer of the same form on another batch", draw(_STEPS, us=100, **_PASSES), facts=_facts([]), near_miss=True
    ),
    Example(
        "the observed step ran other ops than the profiled ones",
        draw(_STEPS, us=100, **_PASSES),
        facts={"reused": {"names": ["aten::conv2d"], "ops": [0, 0, 0], "again": [(2, 0)], "constant": []}},
        near_miss=True,
        skipped="ran different ops",
    ),
    Example(
        "autocast converts a weight at each use, since its region ended in between",
        draw(
            """
            step   [1                                   ][2                                   ]
            cpu    [A       ][B       ][C ][Z][Y ][X][W ] [D       ][E       ][F ][V][U ][T][S ]
            cpu     [t  ][l ] [u  ][m ]                    [v  ][n ] [w  ][o ]
            """,
            us=100,
            **_CASTING,
        ),
        facts={"reused": _CAST_AGAIN},
        saves_us=(800, 1100),
        says=("Autocast converts 1 tensor a step",),
    ),
    Example(
        "the first cast served a pass without gradients: the backward pass goes through one cast in any case",
        draw(
            """
            step   [1                                   ][2                                   ]
            cpu    [A       ][B       ][C ][Z][Y ][X  ]   [D       ][E       ][F ][V][U ][T  ]
            cpu     [t  ][l ] [u  ][m ]                    [v  ][n ] [w  ][o ]
            """,
            us=100,
            **({key: one for key, one in _CASTING.items() if key not in "WS"} | _SHORT_CASTS),
        ),
        facts={"reused": _CAST_AGAIN},
        near_miss=True,
    ),
    Example(
        "of three steps one was interrupted in the op that is computed again",
        draw(
            """
            step   [1                      ][2                      ][3                      ]
            cpu    [A        ][C ][b       ][A        ][C ][B       ][A        ][C ][b       ]
            """,
            us=1000,
            A=FORWARD,
            B=FORWARD,
            C="aten::relu",
            b=Ev(FORWARD.name, fill=0.02),
        ),
        facts=_facts([(2, 0)]),
        near_miss=True,
    ),
    Example(
        "a closure is called once before the optimizer's step, which calls it again; steps begin between the two",
        draw(_CLOSURE, us=100, **_CALLED),
        facts={"reused": _CALLED_TWICE},
        saves_us=(1000, 1900),
        says=("A loss and its backward pass",),
    ),
    Example(
        "what the step before had is computed again for a backward pass of another kind",
        draw(_CLOSURE, us=100, **(_CALLED | {"Y": node(2, "ReluBackward0"), "W": node(4, "ReluBackward0")})),
        facts={"reused": _CALLED_TWICE},
        near_miss=True,
    ),
    Example("nobody looked", draw(_STEPS, us=100, **_PASSES), facts={}, skipped="was not recorded"),
]

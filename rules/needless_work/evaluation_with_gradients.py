"""Evaluation runs without torch.no_grad().

## What it looks at
Forward ops within the training steps that autograd recorded and that no backward pass followed: a validation without
`torch.no_grad()`, a frozen network, a metric. Passes that repeat the training forward pass op for op are reported by
the rule second-forward. Evaluation loops between the training steps are not in the profile.

## Why it costs time
Autograd keeps every intermediate result until the graph is freed. The evaluation then needs memory for all of them
at once, newly allocated each time, where one or two buffers would do; and each op pays for being recorded.

## How to fix it
`@torch.no_grad()` on the function, or `with torch.inference_mode():` around the pass. For a part that is not trained,
`features.detach()` alone is too late: the pass itself has to run under `no_grad`.

## When to leave it
When gradients with respect to the inputs are computed later, after the steps that were profiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    NO_GRAD_SAVES,
    CallSites,
    Ev,
    Example,
    Finding,
    Fix,
    Price,
    Source,
    UnfollowedForwards,
    WatchedRun,
    draw,
    duration,
    is_network,
)

from ..shared._examples import node, op
from ..shared._places import place
from ..shared._words import often, percent
from ._unused_records import places_of, unused_runs

CONFIRMED = "measured pair on a CPU: a validation every 5 steps, with and without no_grad"

# Time in ops that the trained forward pass runs too, from which on it is the same pass again.
_THE_SAME = 0.8


def check(
    price: Price,
    forwards: UnfollowedForwards,
    sites: CallSites,
    run: WatchedRun | None,
    *,
    min_share: float = 0.05,  # of the step, at most half of which is saved; a loss term that is only logged takes less
) -> Iterator[Finding]:
    steps, scale = price.ops.steps, price.scale
    runs = [run for run in forwards.runs if run.repeated < _THE_SAME and is_network(price.ops.events, run)]
    if not runs:
        return
    spent_us, _ = unused_runs(price, runs)
    if spent_us < min_share * steps.step_us:
        return
    claims = price.claims("forward", "other_ops", "host")
    how = "from 0 to the largest share of the pass that `no_grad` saved in eleven models on a CPU"
    on_cpu = scale.saving(0.0, min(spent_us, price.measured_us(claims)) * NO_GRAD_SAVES, how)
    where = places_of(max(runs, key=lambda run: run.end_ns - run.start_ns), sites)
    if len(runs) < steps.count:
        where = _watched(run, where)
    yield Finding(
        message=(
            f"Forward ops whose graph no backward pass uses run {often(len(runs) / steps.count)}"
            f"{place(next(iter(where), None))}: {duration(scale.scaled(spent_us))} of an average step "
            f"({percent(spent_us / steps.step_us)}), and all their results stay in memory."
        ),
        saving=None if price.on_device else on_cpu,
        where=where,
        facts={"forward_us": spent_us, "per_step": len(runs) / steps.count},
        fix=Fix(
            "Evaluate under `torch.no_grad()`",
            "exact",
            "def evaluate():\n    model.eval()\n    ...",
            "@torch.no_grad()\ndef evaluate():\n    model.eval()\n    ...",
        ),
        claims=claims,
        # What a device saves is memory above all, and how much time that gives nobody has measured here.
        at_most="low" if price.on_device else "medium",
    )


def _watched(run: WatchedRun | None, where: tuple[Source, ...]) -> tuple[Source, ...]:
    """The lines of the evaluation that the run's account knows, where the step's lines name none of them.

    Lines are recorded in a step or two: where these do not evaluate, ops of the evaluation look like those of training.
    """
    part = run.loop.get("evaluation") if run else None
    known = tuple(line.source for line in part.lines) if part else ()
    at = {(one.file, one.line) for one in known}
    return where if not known or any((one.file, one.line) in at for one in where) else known


def _linear(number: int, samples: int) -> Ev:
    return op("linear", [samples, 256], [1024, 256], [1024], number=number)


_STEPS = """
    step   [1                                  ][2                                  ]
    cpu    [A ][B ][Z   ][Y   ][C   ][D   ]      [E ][F ][X   ][W   ][G   ][H   ]
    """
_TRAINED: dict[str, Any] = {
    "A": _linear(1, 64),
    "B": _linear(2, 64),
    "Z": node(2),
    "Y": node(1),
    "E": _linear(5, 64),
    "F": _linear(6, 64),
    "X": node(6),
    "W": node(5),
}
_FREE = Ev("aten::linear", dims=[[512, 256], [1024, 256], [1024]])

EXAMPLES = [
    Example(
        "a validation batch after each step",
        draw(_STEPS, us=100, **_TRAINED, C=_linear(3, 512), D=_linear(4, 512), G=_linear(7, 512), H=_linear(8, 512)),
        saves_us=(0, 600),
        says=("no backward pass uses", "once a step"),
    ),
    Example(
        "the same beside a GPU, where it is memory that counts",
        draw(
            """
            step   [1                                  ][2                                  ]
            cpu    [A ][B ][Z   ][Y   ][C   ][D   ]      [E ][F ][X   ][W   ][G   ][H   ]
            gpu 7   [K ][K ]            [K   ][K   ]      [K ][K ]            [K   ][K   ]
            """,
            us=100,
            **_TRAINED,
            C=_linear(3, 512),
            D=_linear(4, 512),
            G=_linear(7, 512),
            H=_linear(8, 512),
        ),
        saves_us="unknown",
    ),
    Example("under no_grad", draw(_STEPS, us=100, **_TRAINED, C=_FREE, D=_FREE, G=_FREE, H=_FREE), near_miss=True),
    Example(
        "the trained pass again is a matter of another rule",
        draw(_STEPS, us=100, **_TRAINED, C=_linear(3, 64), D=_linear(4, 64), G=_linear(7, 64), H=_linear(8, 64)),
        near_miss=True,
    ),
    Example(
        "an action is drawn from what a trained policy says",
        draw(
            """
            step   [1                                  ][2                                  ]
            cpu    [A ][R][S         ][B ][Z   ][Y   ]   [E ][T][S         ][F ][X   ][W   ]
            """,
            us=100,
            A=_linear(1, 64),
            R=op("softmax", [64, 1024], number=2),
            B=_linear(3, 64),
            Z=node(3),
            Y=node(1),
            E=_linear(4, 64),
            T=op("softmax", [64, 1024], number=5),
            F=_linear(6, 64),
            X=node(6),
            W=node(4),
            S=Ev("aten::multinomial", dims=[[64, 1024]]),
        ),
        near_miss=True,
    ),
    Example(
        "a distribution checks what it is given: no pass of a network",
        draw(
            _STEPS,
            us=100,
            **_TRAINED,
            C=op("sum", [512, 64], number=3),
            D=op("abs", [512], number=4),
            G=op("sum", [512, 64], number=7),
            H=op("abs", [512], number=8),
        ),
        near_miss=True,
    ),
    Example(
        "every forward pass has its backward pass",
        draw(
            """
            step   [1                                  ][2                                  ]
            cpu    [A ][B ][Z   ][Y   ]                  [E ][F ][X   ][W   ]
            """,
            us=100,
            **_TRAINED,
        ),
    ),
]

"""A loop runs the model on one sample at a time.

## What it looks at
A line of the script that calls the same module (not a single layer) at least four times in a step, from outside of any
other module, with ops so short that most of their time is call overhead. Everything that runs during these calls
belongs to the loop, and so does its part of the backward pass. `advisor run` observes in two separate steps whether a
call needs the result of the previous one: what it needs is not counted. Lines and modules must be recorded; without
them the rule reports nothing. Loops that run a backward pass for each call, as gradient accumulation does, and loops
that the observed steps did not run are not reported; nor is a loop of a library that is handed the model, as a solver
of differential equations is.

## Why it costs time
Python, the dispatch of each op and the backward pass cost the same for one sample as for many. A model that is called
for every sample of a batch pays for that as often as there are samples.

## How to fix it
Stack the samples, and call the model once per step: `torch.stack` where they have one shape; `pad_sequence`, a mask or
a nested tensor where they do not; one block-diagonal graph for graphs. Batch normalization then sees the whole batch
instead of single samples.

## When to leave it
Where each call needs what the one before it returned, as in a rollout or a decoder that feeds itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from advisor.api import (
    FORWARD,
    CalledModel,
    Ev,
    Example,
    Finding,
    Fix,
    LoopDependencies,
    LoopPlaces,
    Price,
    Saving,
    draw,
    duration,
)

from ..shared._loop_saving import loop_saving
from ..shared._places import place
from ..shared._words import each_step, often

_FIX = Fix(
    "Stack the samples, and call the model once for all of them",
    "numerics",
    "loss = sum(criterion(model(sample), target) for sample, target in batch)",
    "samples, targets = (torch.stack(part) for part in zip(*batch))\nloss = criterion(model(samples), targets)",
)


def check(
    price: Price,
    places: LoopPlaces | None,
    turns: LoopDependencies | None,
    *,
    min_share: float = 0.1,  # a model that takes single samples has to be rewritten: less does not justify that
    max_work: float = 0.3,  # of the calls' time, beyond the cost of calling ops: with more, it is whole batches
) -> Iterator[Finding]:
    if places is None or turns is None or price.ops.device.kind != "none":
        return
    for one, turn in zip(places.calls, turns.calls, strict=True):
        if turn.missed:
            continue  # what does not run in each step plays or decodes, most often: one call needs the other's result
        if one.library:
            continue  # a solver or a sampler that is handed the model: the script has no samples to stack
        goes = one.place.less(turn.stays)
        if (goes.beyond_us or 0.0) > max_work * (goes.us + goes.backward_us):
            continue  # long enough to be whole batches
        if goes.share(price.deprofiled)[1] >= min_share:
            yield _finding(one, loop_saving(one.place, one.loop, turn, price), price)


def _finding(one: CalledModel, saving: Saving, price: Price) -> Finding:
    us, backward_us = one.place.us, one.place.backward_us
    said = each_step(price, us)
    behind = f", and {duration(price.scale.scaled(backward_us))} in the backward pass" if backward_us else ""
    return Finding(
        message=(
            f"A loop{place(one.where[0])} calls `{one.loop.op}` {often(one.loop.turns)}, one call "
            f"after the other: they take {said}{behind}."
        ),
        saving=saving,
        where=tuple(dict.fromkeys((*one.where, *one.place.where))),
        facts={"calls": one.loop.turns, "calls_us": us, "backward_us": backward_us, "module": one.loop.op},
        fix=_FIX,
        claims=("forward", "backward", "other_ops", "host"),
    )


_PROFILED = """
    step   [1                     ][2                     ]
    cpu    [L             ][B    ] [L             ][B    ]
    """
_RECORDED = """
    step   [1                     ]
    cpu    [C             ][S    ]
    cpu    [M             ]
    cpu    [N             ]
    cpu    [L             ][B    ]
    """

_CALLED = "    cpu    [M             ]\n"
_HANDED_OVER = "    cpu    [V             ]\n" + _CALLED


def _line(number: int, times: int = 1) -> Ev:
    return Ev(f"advisor:line|train.py|{number}|train", "user_annotation", times=times)


def _recorded(calls: int, ops: int, solver: str = "") -> Any:
    """So many calls of the model in line 31, each with so many layers; the backward pass in line 33.

    solver: the function of a library that line 31 calls once, and that makes these calls.
    """
    module, inside = _modules(calls)
    layers, line = Ev(FORWARD.name, times=calls * ops, fill=0.3), _line(31, 1 if solver else calls)
    text = _RECORDED.replace(_CALLED, _HANDED_OVER) if solver else _RECORDED
    more: dict[str, Any] = {"V": Ev(f"advisor:call|{solver}", "user_annotation")} if solver else {}
    return draw(text, us=100, C=line, M=module, N=inside, L=layers, S=_line(33), **more)


def _modules(calls: int = 1) -> tuple[Ev, Ev]:
    """The model's forward, and that of its only child."""
    model = Ev("advisor:module||Scorer", "user_annotation", times=calls, fill=0.99)
    return model, Ev("advisor:module|layers|Sequential", "user_annotation", times=calls, fill=0.98)


def _profiled(ops: int, us: float = 100) -> Any:
    return draw(_PROFILED, us=us, L=Ev(FORWARD.name, times=ops, fill=0.3))


EXAMPLES = [
    Example(
        "eight samples, each through three layers by itself",
        _profiled(24),
        lines=_recorded(8, 3),
        saves_us=(0, 2400),
        says=("train.py:31", "`Scorer` 8 times a step"),
    ),
    Example(
        "a solver that is handed the model calls it eight times",
        _profiled(24),
        lines=_recorded(8, 3, solver="solvers.integrate"),
        near_miss=True,
    ),
    Example("both sides of a pair", _profiled(24), lines=_recorded(2, 12), near_miss=True),
    Example("the whole batch at once", _profiled(3), lines=_recorded(1, 3)),
    Example(
        "a backward pass for each sample, as accumulation runs it",
        draw(
            """
            step   [1                                 ][2                                 ]
            cpu    [L  ][B ][L  ][B ][L  ][B ][L  ][B ][L  ][B ][L  ][B ][L  ][B ][L  ][B ]
            """,
            us=100,
            L=Ev(FORWARD.name, times=3, fill=0.3),
        ),
        lines=draw(
            """
            step   [1                                 ]
            cpu    [C  ][S ][C  ][S ][C  ][S ][C  ][S ]
            cpu    [M  ]    [M  ]    [M  ]    [M  ]
            cpu    [N  ]    [N  ]    [N  ]    [N  ]
            cpu    [L  ][B ][L  ][B ][L  ][B ][L  ][B ]
            """,
            us=100,
            C=_line(31),
            S=_line(33),
            M=_modules()[0],
            N=_modules()[1],
            L=Ev(FORWARD.name, times=3, fill=0.3),
        ),
        near_miss=True,
    ),
    Example(
        "eight look-ups in one embedding",
        _profiled(24),
        lines=draw(
            _RECORDED.replace("    cpu    [N             ]\n", ""),
            us=100,
            C=_line(31, 8),
            M=_modules(8)[0],
            L=Ev(FORWARD.name, times=24, fill=0.3),
            S=_line(33),
        ),
        near_miss=True,
    ),
    Example("a bare trace", _profiled(24)),
]

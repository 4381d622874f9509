"""A second forward pass recomputes an output that the first one returned.

## What it looks at
Ops that autograd recorded, that no backward pass followed, and that are the same ops on the same shapes as those of
the training forward pass of the same step, with the same weights: no optimizer step lies between them, and both or
neither apply dropout. A pass that ran once in a window of several steps is ignored. Under `torch.no_grad()` the second
network may be another one of the same form, such as a target network; such a pass counts if `advisor run` observed, in
two separate steps, that its ops read exactly the tensors that the training pass had read. A pass after the optimizer's
step, with the new weights, counts if it was observed there that it reads the batch of the training pass and differs in
nothing but the update, and that its results end in single numbers for Python.

## Why it costs time
A forward pass is about a third of a training step. Running it again for the accuracy, a log or a plot pays that
third twice, and records a graph that is never used.

## How to fix it
Keep the output of the first pass and compute the metric from it, detached: `logits.detach().argmax(1)`. After the
optimizer's step the number is then that before the update, which is what most scripts log; the training is the same.

## When to leave it
When the second pass has other inputs or another network of the same form: then run it under `torch.no_grad()`. A
network with dropout gives other results in training mode than in evaluation mode; a metric in evaluation mode
needs its own pass. Where the number after the update is wanted, as for what one step gains on its own batch, or where
Python decides by it (a divergence that ends an epoch of PPO).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    CallSites,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    MetricPasses,
    Price,
    Reused,
    Source,
    Unfollowed,
    UnfollowedForwards,
    draw,
)

from ..shared._examples import node, op
from ..shared._places import place
from ..shared._words import each_step, often
from ._after_the_update import AFTER_THE_UPDATE, after_the_update
from ._proven_passes import asked, proven_again
from ._same_result import reuse
from ._second_forward_examples import LAYER, WITHOUT_GRADIENTS, linear
from ._unused_records import places_of, unused_runs

CONFIRMED = "measured pair on a CPU: an accuracy from a second forward pass against one from the first"

# Time in ops that the trained forward pass runs too, from which on the two are the same network on the same shapes.
_THE_SAME = 0.8
# A forward pass of fewer ops is a term of the loss, not a network.
_OPS = 2
_OFTEN = 2


def check(
    price: Price,
    forwards: UnfollowedForwards,
    reused: Reused | None,
    lines: Lines | None,
    sites: CallSites,
    metric: MetricPasses | None,
    *,
    min_share: float = 0.02,  # a line to change; below 2 % of the step the gain is within the noise between steps
) -> Iterator[Finding]:
    if reused:
        yield from _without_gradients(price, reused, forwards, lines, sites, min_share)
    if metric:
        yield from after_the_update(price, metric.ops, lines, sites, min_share)
    runs = [run for run in forwards.runs if run.repeated >= _THE_SAME and len(run.rows) >= _OPS]
    # What runs once in a window of many steps may be an accident of where the window ends.
    if len(runs) < min(_OFTEN, price.ops.steps.count):
        return
    claims = price.claims("forward", "other_ops", "host")
    spent_us, gone = unused_runs(price, runs)
    how = "low: it has other inputs, or needs another mode; high: the step without the second pass"
    saving = price.saving([], [gone], claims, how)
    if saving.high_us < min_share * price.scale.step_us:
        return
    where = next((found for run in runs if (found := places_of(run, sites))), ())
    where = tuple(dict.fromkeys((*where, *_first_pass(price, runs[0], forwards, sites))))
    per_step = len(runs) / price.ops.steps.count
    yield Finding(
        message=(
            f"The training forward pass is repeated {often(per_step)}{place(next(iter(where), None))}, with the same "
            f"ops and shapes and no backward pass: {each_step(price, spent_us)}."
        ),
        saving=saving,
        where=where,
        facts={"forward_us": spent_us, "per_step": per_step, "same_share": min(run.repeated for run in runs)},
        fix=_FIRST_OUTPUT,
        claims=claims,
        # Equal shapes do not prove equal inputs.
        at_most="medium",
    )


def _first_pass(price: Price, run: Unfollowed, forwards: UnfollowedForwards, sites: CallSites) -> tuple[Source, ...]:
    """The line that asks for the trained pass with the same ops and shapes in the same step, if it is known."""
    events, steps = price.ops.events, price.ops.steps
    same = {(int(events.name[row]), int(events.dims[row])) for row in run.rows}
    step = steps.step_of(events.start_ns[list(run.rows[:1])])[0]
    trained = forwards.trained[steps.step_of(events.start_ns[forwards.trained]) == step]
    twins = [row for row in trained.tolist() if (int(events.name[row]), int(events.dims[row])) in same]
    asked = sites.where_apart(np.array(twins, np.int64))
    return (asked,) if asked else ()


def _without_gradients(
    price: Price, reused: Reused, forwards: UnfollowedForwards, lines: Lines | None, sites: CallSites, min_share: float
) -> Iterator[Finding]:
    """Passes that run again without gradients, one a step: a third repeats the first as the second does."""
    trace, steps = price.ops.trace, price.ops.steps
    again, first = proven_again(trace, reused, forwards)
    ran = len(np.unique(steps.step_of(trace.events.start_ns[again])))
    if ran < min(_OFTEN, steps.count):
        return
    work = reuse(price, reused, lines, np.unique(again), np.unique(first))
    if not work.is_material(price, min_share):
        return
    where = asked(trace, lines, sites, again, first)
    at = place(next(iter(where), None))
    yield Finding(
        message=(
            f"The training forward pass is repeated without gradients {often(ran / steps.count)}{at}, on the same "
            f"tensors with the same weights: {each_step(price, work.us)}."
        ),
        saving=work.saving,
        where=tuple(dict.fromkeys((*where, *work.where))),
        facts={"forward_us": work.us, "per_step": ran / steps.count, "ops": len(work.rows) / steps.count},
        fix=_FIRST_OUTPUT,
        claims=work.claims,
    )


_FIRST_OUTPUT = Fix(
    "Reuse the output of the first forward pass",
    "exact",
    "logits = model(inputs)\nloss = criterion(logits, targets)\ncorrect += (model(inputs).argmax(1) == targets).sum()",
    "logits = model(inputs)\nloss = criterion(logits, targets)\n"
    "correct += (logits.detach().argmax(1) == targets).sum()",
)


_STEPS = """
    step   [1                             ][2                             ]
    cpu    [A ][B ][Z   ][Y   ][C ][D ]     [E ][F ][X   ][W   ][G ][H ]
    """
_TRAINED: dict[str, Any] = {"A": linear(1), "B": linear(2), "Z": node(2), "Y": node(1)}
_TRAINED_2: dict[str, Any] = {"E": linear(5), "F": linear(6), "X": node(6), "W": node(5)}
_OTHER = [[512, 256], [1024, 256], [1024]]

_SOLVER: dict[str, Any] = {
    **{name: linear(at + 1) for at, name in enumerate("ABCDIKP")},
    **{name: linear(at + 8) for at, name in enumerate("EFGHJMQ")},
    **{name: node(5 - at) for at, name in enumerate("ZYXWL")},
    **{name: node(12 - at) for at, name in enumerate("VUTSN")},
}

EXAMPLES = [
    *WITHOUT_GRADIENTS,
    *AFTER_THE_UPDATE,
    Example(
        "the accuracy comes from a pass of its own",
        draw(_STEPS, us=100, **_TRAINED, **_TRAINED_2, C=linear(3), D=linear(4), G=linear(7), H=linear(8)),
        saves_us=(0, 1000),
        says=("repeated once a step",),
    ),
    Example(
        "the same beside a GPU",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [A ][B ][Z   ][Y   ][C ][D ]     [E ][F ][X   ][W   ][G ][H ]
            gpu 7   [K ][K     ][K       ][K  ][K]   [K ][K     ][K       ][K  ][K]
            """,
            us=100,
            **(_TRAINED | {"Z": node(2, launches="kernel")}),
            **(_TRAINED_2 | {"X": node(6, launches="kernel")}),
            C=linear(3),
            D=linear(4),
            G=linear(7),
            H=linear(8),
        ),
        saves_us=(0, 1700),
    ),
    Example(
        "a validation batch of another size",
        draw(
            _STEPS,
            us=100,
            **_TRAINED,
            **_TRAINED_2,
            C=linear(3, _OTHER),
            D=linear(4, _OTHER),
            G=linear(7, _OTHER),
            H=linear(8, _OTHER),
        ),
        near_miss=True,
    ),
    Example(
        "a second pass in one of two steps",
        draw(_STEPS.replace("[G ][H ]", ""), us=100, **_TRAINED, **_TRAINED_2, C=linear(3), D=linear(4)),
        near_miss=True,
    ),
    Example(
        "a target network under no_grad",
        draw(
            _STEPS,
            us=100,
            **_TRAINED,
            **_TRAINED_2,
            C=Ev("aten::linear", dims=LAYER),
            D=Ev("aten::linear", dims=LAYER),
            G=Ev("aten::linear", dims=LAYER),
            H=Ev("aten::linear", dims=LAYER),
        ),
        near_miss=True,
    ),
    Example(
        "a pass with gradients after the optimizer step, of which nobody saw what it reads",
        draw(
            """
            step   [1                                 ][2                                 ]
            cpu    [A ][B ][Z   ][Y   ] [O ] [C ][D ]  [E ][F ][X   ][W   ] [O ] [G ][H ]
            """,
            us=100,
            **_TRAINED,
            **_TRAINED_2,
            C=linear(3),
            D=linear(4),
            G=linear(7),
            H=linear(8),
        ),
        near_miss=True,
    ),
    Example(
        "a second pass in evaluation mode: the trained one drops out, this one does not",
        draw(
            """
            step   [1                                 ][2                                 ]
            cpu    [A ][P ][B ][Z ][R ][Y ][C ][D ]    [E ][Q ][F ][X ][V ][W ][G ][H ]
            """,
            us=100,
            **(_TRAINED | {"B": linear(3), "Z": node(3), "R": node(2)}),
            P=op("native_dropout", [64, 1024], number=2),
            E=linear(6),
            Q=op("native_dropout", [64, 1024], number=7),
            F=linear(8),
            X=node(8),
            V=node(7),
            W=node(6),
            C=linear(4),
            D=linear(5),
            G=linear(9),
            H=linear(10),
        ),
        near_miss=True,
    ),
    Example(
        "a solver calls the network again and again, and does not use its last stage",
        draw(
            """
            step   [1                                             ][2                                             ]
            cpu    [A ][B ][C ][D ][I ][Z ][Y ][X ][W ][L ][K ][P ][E ][F ][G ][H ][J ][V ][U ][T ][S ][N ][M ][Q ]
            """,
            us=100,
            **_SOLVER,
        ),
        near_miss=True,
    ),
    Example(
        "every forward pass has its backward pass",
        draw(
            """
            step   [1                             ][2                             ]
            cpu    [A ][B ][Z   ][Y   ]             [E ][F ][X   ][W   ]
            """,
            us=100,
            **_TRAINED,
            **_TRAINED_2,
        ),
    ),
]

"""create_graph=True is set, but no backward pass uses the recorded graph.

## What it looks at
Backward passes whose ops autograd records, as `create_graph=True` requests, and the nodes that every later backward
pass evaluates. A pass is reported if none of the nodes that were recorded inside it, nor inside another pass of the
same form, is ever evaluated. Checkpointed layers, which are recomputed and recorded inside a backward pass, are
excluded, and so are transforms of `torch.func`, which always record. With a device, only the time counts for which it
waits.

## Why it costs time
Each op of such a pass allocates a node and keeps its inputs, and all of it is freed again, unused, at the end. Until
then the activations of the forward pass stay in memory, too.

## How to fix it
Remove `create_graph` where gradients are only applied. A gradient from which another loss is computed (a
penalty, second-order meta-learning, forces that are trained) needs it; for first-order meta-learning
`grad.detach()` is enough.

## When to leave it
Where the gradient is differentiated again in steps that were not recorded. Write `create_graph=model.training` if
an evaluation computes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from advisor.api import (
    NO_GRAD_SAVES,
    OPTIMIZER,
    BackwardPasses,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Lines,
    Price,
    UnfollowedForwards,
    constant,
    draw,
    total,
)

from ..shared._device_waits import waiting_us
from ..shared._examples import node, op
from ..shared._places import TRIED, first_line, place
from ..shared._words import each_step, often
from ._unused_records import behind, unused_passes

CONFIRMED = "measured pair on a CPU: first-order meta-learning with create_graph=True against without"

# Of a pass with its record, what was saved without it.
_SAVES = constant("share.second_order").range


def check(
    price: Price,
    backward: BackwardPasses,
    forwards: UnfollowedForwards | None,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # an argument to remove; below 2 % of the step the gain is within the noise
) -> Iterator[Finding]:
    steps, scale = price.ops.steps, price.scale
    passes = backward.seen(lambda found: list(unused_passes(price.ops, found)))
    if not passes:
        return
    claims: tuple[str, ...] = ()
    spans = np.array([(one.start_ns, one.end_ns) for one in passes], np.int64)
    beyond = behind(price.ops.events, backward.all, passes, forwards)
    if price.on_device:
        # What records takes time of the host; the device is late by no more than it waits for that.
        spent_us, behind_us = waiting_us(price, spans), waiting_us(price, beyond)
    else:
        spent_us, behind_us = steps.per_step_us(total(spans)), steps.per_step_us(total(beyond))
        claims = ("forward", "backward", "other_ops", "host")
    bound_us = price.measured_us(claims)
    low, high = _SAVES
    saving = scale.saving(
        0.0 if price.on_device else min(low * spent_us, bound_us),
        min(high * spent_us + NO_GRAD_SAVES * behind_us, bound_us),
        "low: the least that such a pass gained without create_graph in nine models on a CPU; high: the most, plus "
        "the most that no_grad saved of the ops that use its gradients"
        + ("; here of the time for which the device waits, low: nothing" if price.on_device else ""),
    )
    if saving.high_us < min_share * scale.step_us:
        return
    where = first_line(lines, np.array([one.nodes[0] for one in passes[:TRIED]]))
    yield Finding(
        message=(
            f"A backward pass with `create_graph=True` runs {often(len(passes) / steps.count)}"
            f"{place(where)}, and no later backward pass uses its graph: "
            f"{'the GPU waits for it for ' if price.on_device else ''}{each_step(price, spent_us)}."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"passes": len(passes) / steps.count, "recorded_us": spent_us},
        fix=Fix(
            "Remove `create_graph=True`",
            "exact",
            "grads = torch.autograd.grad(loss, weights, create_graph=True)",
            "grads = torch.autograd.grad(loss, weights)",
        ),
        claims=claims,
        # A step that was not recorded may use it.
        at_most="medium",
    )


def _inside(name: str, number: int | None = None, thread: int = 0) -> Ev:
    return Ev(name, args={} if number is None else {"Sequence number": number, "Fwd thread id": thread})


# Forward (A), a backward pass (Z) whose derivative (D) calls a product (M); another loss (B) and its pass (Y).
_STEPS = """
    step   [1                                 ][2                                 ]
    cpu    [A ][Z             ][B ][Y   ][O ]    [C ][X             ][E ][W   ][P ]
    cpu         [D           ]                        [F           ]
    cpu           [M       ]                            [N       ]
    """


# The same with a device that waits for the host, or that works all the time.
_BESIDE = _STEPS + "gpu 7   [K ]        [K ]   [K ][K   ]         [K ]        [K ]   [K ][K   ]\n"
_AHEAD = _STEPS + "gpu 7  [K                                   ][K                                   ]\n"


def _drawn(*, recorded: bool = True, followed: bool = False, again: bool = False) -> Drawing:
    """Two steps. recorded: with create_graph=True; followed: the second pass goes through it; again: checkpointed."""
    return draw(_STEPS, us=100, **_rows(recorded=recorded, followed=followed, again=again))


def _rows(*, recorded: bool, followed: bool, again: bool) -> dict[str, Any]:
    name = "aten::linear" if again else "aten::mm"
    return {
        "A": op("linear", number=1),
        "Z": node(1, launches=None),
        "D": _inside("AddmmBackward0", 1, 1),
        "M": _inside(name, 2 if recorded else None),
        "B": op("linear", number=3),
        "Y": node(2 if followed else 3, launches=None),
        "C": op("linear", number=4),
        "X": node(4, launches=None),
        "F": _inside("AddmmBackward0", 4, 1),
        "N": _inside(name, 5 if recorded else None),
        "E": op("linear", number=6),
        "W": node(5 if followed else 6, launches=None),
        "P": OPTIMIZER,
    }


EXAMPLES = [
    Example(
        "the gradients of an inner step are only applied, and recorded",
        _drawn(),
        saves_us=(40, 450),
        says=("`create_graph=True`", "once a step"),
    ),
    Example(
        "the same beside a device that waits for the pass",
        draw(_BESIDE, us=100, **_rows(recorded=True, followed=False, again=False)),
        saves_us=(0, 450),
        says=("the GPU waits for it",),
    ),
    Example(
        "beside a device that has enough to do",
        draw(_AHEAD, us=100, **_rows(recorded=True, followed=False, again=False)),
        near_miss=True,
    ),
    Example("a gradient penalty: the record is differentiated", _drawn(followed=True), near_miss=True),
    Example("without create_graph", _drawn(recorded=False)),
]

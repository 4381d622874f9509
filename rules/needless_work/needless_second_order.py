"""create_graph=True is set, but no backward pass uses the recorded graph.

## What it looks at
Backward passes whose ops autograd records, as `create_graph=True` requests, and the nodes that every later backward
pass evaluates. A pass is reported if none of the nodes that were recorded inside it, nor inside another pass of the
same form, is ever evaluated. Checkpointed layers, which are recomputed and recorded inside a backward pass, are
left out, and so are transforms of `torch.func`, which always record. Only without an accelerator, where the calls take
time; on a device the cost is mostly memory.

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

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from advisor.api import (
    BACKWARD,
    NO_GRAD_SAVES,
    OPTIMIZER,
    Category,
    Drawing,
    Ev,
    Events,
    Example,
    Finding,
    Fix,
    Intervals,
    Lines,
    Nesting,
    Price,
    Scale,
    StepOps,
    Steps,
    Trace,
    UnfollowedForwards,
    backward_passes,
    constant,
    draw,
    is_network,
    total,
    union,
)

from ..shared._places import often, place
from ..shared._words import percent, time

CONFIRMED = "measured pair on a CPU: first-order meta-learning with create_graph=True against without"

Ints = npt.NDArray[np.int64]
# Of a pass with its record, what was saved without it.
_SAVES = constant("share.second_order").range
# A pass records itself where nearly all that its derivatives call is recorded: a checkpointed layer is a part of one.
_RECORDED = 0.9
# Transforms of torch.func always record, and nobody can tell them not to: there each op is seen twice.
_BY_TRANSFORM = 0.5
# Passes whose line is asked for; where these have none, neither have others.
_TRIED = 8


def check(
    recorded: StepOps,
    steps: Steps,
    scale: Scale,
    price: Price,
    forwards: UnfollowedForwards | None,
    lines: Lines | None,
    *,
    min_share: float = 0.02,  # an argument to remove; below 2 % of the step the gain is within the noise
) -> Iterator[Finding]:
    if price.on_device:
        return
    trace, nesting = recorded.trace, recorded.nesting
    found = backward_passes.passes(trace, steps, nesting)
    vain = list(_in_vain(trace, nesting, found))
    if not vain:
        return
    spans = np.array([(one.start_ns, one.end_ns) for one in vain], np.int64)
    spent_us = steps.per_step_us(total(spans))
    behind = _behind(trace, found, vain, forwards)
    behind_us = steps.per_step_us(total(behind))
    claims = ("forward", "backward", "other_ops", "host")
    bound_us = price.measured_us(claims)
    low, high = _SAVES
    saving = scale.saving(
        min(low * spent_us, bound_us),
        min(high * spent_us + NO_GRAD_SAVES * behind_us, bound_us),
        "low: the least that such a pass gained without create_graph in nine models on a CPU; high: the most, plus "
        "the most that no_grad saved of the ops that use its gradients",
    )
    if saving.high_us < min_share * scale.step_us:
        return
    where = next((line for one in vain[:_TRIED] if lines and (line := lines.where_op(one.nodes[0]))), None)
    yield Finding(
        message=(
            f"A backward pass with `create_graph=True` runs {often(len(vain) / steps.count)}"
            f"{place(where)}, and no later backward pass uses its graph: {time(scale.scaled(spent_us))} of each "
            f"step ({percent(spent_us / steps.step_us)})."
        ),
        saving=saving,
        where=(where,) if where else (),
        facts={"passes": len(vain) / steps.count, "recorded_us": spent_us},
        fix=Fix(
            "Remove `create_graph=True`",
            "exact",
            "grads = torch.autograd.grad(loss, weights, create_graph=True)",
            "grads = torch.autograd.grad(loss, weights)",
        ),
        claims=claims,
        # A step that nobody recorded may go through it.
        at_most="medium",
    )


def _in_vain(trace: Trace, nesting: Nesting, found: Sequence[backward_passes.Pass]) -> Iterator[backward_passes.Pass]:
    """The passes that record themselves and that no pass goes through; none of a form that another goes through."""
    events = trace.events
    own = _recorded(events, nesting, found)
    if not any(own):
        return
    nodes = np.flatnonzero(events.named(backward_passes.NODE) & (events.sequence >= 0))
    updates = events.start_ns[events.of(Category.ANNOTATION) & events.named(backward_passes.UPDATES)]
    last_ns = int(updates.max()) if len(updates) else 0
    used = set()
    for one, numbers in zip(found, own, strict=True):
        later = events.sequence[nodes[events.start_ns[nodes] >= one.end_ns]]
        if numbers and np.any((later >= numbers[0]) & (later <= numbers[1])):
            used.add(_form(events, one))
    for one, numbers in zip(found, own, strict=True):
        # What goes through the record of the last step may come after the trace.
        if numbers and one.end_ns <= last_ns and _form(events, one) not in used:
            yield one


def _behind(
    trace: Trace,
    found: Sequence[backward_passes.Pass],
    vain: Sequence[backward_passes.Pass],
    forwards: UnfollowedForwards | None,
) -> Intervals:
    """When ops on the gradients of these passes ran that were recorded for them alone: up to the next pass."""
    starts = np.array([*(one.start_ns for one in found), np.iinfo(np.int64).max], np.int64)
    runs = [run for run in forwards.runs if not is_network(trace.events, run)] if forwards is not None else []
    ends = np.array([one.end_ns for one in vain], np.int64)
    nexts = starts[np.searchsorted(starts, ends)]
    mine = [run for run in runs if np.any((ends <= run.start_ns) & (run.end_ns <= nexts))]
    return union(np.array([run.start_ns for run in mine], np.int64), np.array([run.end_ns for run in mine], np.int64))


def _recorded(events: Events, nesting: Nesting, found: Sequence[backward_passes.Pass]) -> list[tuple[int, int] | None]:
    """For each pass (first, last) number under which it recorded what its derivatives called; None where it did not."""
    of = np.full(len(events) + 1, -1, np.int64)  # the last one answers for rows without a parent
    for at, one in enumerate(found):
        of[list(one.nodes)] = at
    derivatives = np.flatnonzero((of[nesting.parent] >= 0) & events.of(Category.CPU_OP) & events.named("Backward"))
    inside = np.zeros(len(events) + 1, bool)
    inside[derivatives] = True
    called = np.flatnonzero(inside[nesting.parent] & events.of(Category.CPU_OP))
    number = np.where(events.forward_thread[called] <= 0, events.sequence[called], -1)
    mine = of[nesting.parent[nesting.parent[called]]]
    twice = _twice(events, nesting, called)
    result: list[tuple[int, int] | None] = [None] * len(found)
    for at in np.unique(mine[number >= 0]).tolist():
        numbers = number[mine == at]
        if (numbers >= 0).mean() >= _RECORDED and twice[mine == at].mean() < _BY_TRANSFORM:
            result[at] = int(numbers[numbers >= 0].min()), int(numbers.max())
    return result


def _twice(events: Events, nesting: Nesting, rows: Ints) -> npt.NDArray[np.bool_]:
    """Which ops hold one of the same name and number: a transform of torch.func handed them on to what is below it."""
    holds = np.zeros(len(events) + 1, bool)
    above = nesting.parent
    same = (events.name == events.name[above]) & (events.sequence == events.sequence[above]) & (above >= 0)
    holds[above[same]] = True
    return np.asarray(holds[rows], bool)


def _form(events: Events, one: backward_passes.Pass) -> tuple[int, ...]:
    return tuple(events.name[list(one.nodes)].tolist())


def _node(number: int) -> Ev:
    return Ev(BACKWARD.name, args={"Sequence number": number, "Fwd thread id": 1})


def _inside(name: str, number: int | None = None, thread: int = 0) -> Ev:
    return Ev(name, args={} if number is None else {"Sequence number": number, "Fwd thread id": thread})


def _linear(number: int) -> Ev:
    return Ev("aten::linear", args={"Sequence number": number, "Fwd thread id": 0})


# Forward (A), a backward pass (Z) whose derivative (D) calls a product (M); another loss (B) and its pass (Y).
_STEPS = """
    step   [1                                 ][2                                 ]
    cpu    [A ][Z             ][B ][Y   ][O ]    [C ][X             ][E ][W   ][P ]
    cpu         [D           ]                        [F           ]
    cpu           [M       ]                            [N       ]
    """


def _drawn(*, recorded: bool = True, followed: bool = False, again: bool = False) -> Drawing:
    """Two steps. recorded: with create_graph=True; followed: the second pass goes through it; again: checkpointed."""
    name = "aten::linear" if again else "aten::mm"
    rows: dict[str, Any] = {
        "A": _linear(1),
        "Z": _node(1),
        "D": _inside("AddmmBackward0", 1, 1),
        "M": _inside(name, 2 if recorded else None),
        "B": _linear(3),
        "Y": _node(2 if followed else 3),
        "C": _linear(4),
        "X": _node(4),
        "F": _inside("AddmmBackward0", 4, 1),
        "N": _inside(name, 5 if recorded else None),
        "E": _linear(6),
        "W": _node(5 if followed else 6),
        "O": OPTIMIZER,
        "P": OPTIMIZER,
    }
    return draw(_STEPS, us=100, **rows)


EXAMPLES = [
    Example(
        "the gradients of an inner step are only applied, and recorded",
        _drawn(),
        saves_us=(40, 450),
        says=("`create_graph=True`", "once a step"),
    ),
    Example("a gradient penalty: the record is differentiated", _drawn(followed=True), saves_us=None, near_miss=True),
    Example("without create_graph", _drawn(recorded=False), saves_us=None),
]

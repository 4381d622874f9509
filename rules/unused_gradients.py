"""Gradients are computed that no optimizer applies.

## What it looks at
How many parameters get a gradient in one backward pass, against how many the optimizers update, as capture recorded
it. The shapes of the updated parameters tell which gradients are used; what the backward pass does after the last of
them is work for nothing.

## Why it costs time
Leaving parameters out of the optimizer does not stop autograd: it goes on through a frozen network down to its first
layer, computes a gradient for every weight, and keeps all activations of the forward pass for that. That is up to two
thirds of the work on the frozen part, and its memory.

## How to fix it
`backbone.requires_grad_(False)` for what is not trained. Where a part is only used, `with torch.no_grad():` around its
forward pass does the same.

## When to leave it
Gradients that are read by hand, for a penalty or a picture, or applied without an optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.api import (
    OPTIMIZER,
    Breakdown,
    Category,
    Ev,
    Example,
    Finding,
    Fix,
    Links,
    Nesting,
    OptimizerFacts,
    Replay,
    Scale,
    Steps,
    Trace,
    Undilated,
    draw,
    edits,
    replayed_or,
    union,
)

from ._costs import launched_us, widened
from ._operands import dims_of
from ._unfollowed import NO_GRAD_SAVES
from ._words import count, percent, time

CONFIRMED = "measured pair on a CPU: a head trained on a network that is not frozen against one that is"

Ints = npt.NDArray[np.int64]
_NODE = "autograd::engine::evaluate_function"
_STORES = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, slots=True, eq=False)
class _Needless:
    """Nodes of the backward passes after the last gradient that is used; `possible` if equal shapes mislead."""

    sure: Ints
    possible: Ints
    gradients: int


def check(
    trace: Trace,
    steps: Steps,
    breakdown: Breakdown,
    scale: Scale,
    facts: OptimizerFacts,
    nesting: Nesting,
    links: Links,
    undilated: Undilated | None,
    replay: Replay | None,
    *,
    min_share: float = 0.02,  # one line to add; below 2 % of the step the gain drowns in the noise between steps
) -> Iterator[Finding]:
    updated = [one.tensors for one in facts.optimizers]
    applied = sum(number or 0 for number in updated)
    found = _needless(trace, steps, nesting, links, applied) if applied and None not in updated else None
    if found is None or not len(found.possible):
        return
    forward = _forward_of(trace, nesting, links, found.possible)
    claims: tuple[str, ...] = ("compute",) if breakdown.on_device else ("forward", "backward")
    bound_us = sum(breakdown.us(part) for part in claims)
    if breakdown.on_device:
        sure_us, most_us = (launched_us(trace, steps, nesting, links, rows) for rows in (found.sure, found.possible))
        less = []
    else:
        durations = trace.events.dur_ns
        sure_us, most_us = (steps.per_step_us(float(durations[rows].sum())) for rows in (found.sure, found.possible))
        # Without a graph the forward pass of the frozen part gains what no_grad gains.
        most_us += steps.per_step_us(float(durations[forward].sum())) * NO_GRAD_SAVES
        less = [edits.scale(forward, 1 - NO_GRAD_SAVES)]
    how = "low: the backward pass after the last used gradient; high: its forward pass without a graph as well"
    modelled = scale.saving(min(sure_us, bound_us), min(most_us, bound_us), how)
    gone, all_gone = edits.remove(found.sure), [edits.remove(found.possible), *less]
    saving = replayed_or(modelled, replay, [gone], all_gone, how, scale.scaled(bound_us))
    if not breakdown.on_device:
        spans = union(trace.events.start_ns[found.possible], trace.events.end_ns[found.possible])
        saving = widened(saving, trace, steps, scale, undilated, spans, scale.scaled(bound_us))
    if saving.high_us < min_share * scale.step_us:
        return
    yield Finding(
        message=(
            f"A backward pass makes gradients of {count(found.gradients)} parameters, of which the optimizer updates "
            f"{count(applied)}: after the last of these it runs on for {time(scale.scaled(sure_us))} of each step "
            f"({percent(sure_us / steps.step_us)})."
        ),
        saving=saving,
        facts={"gradients": found.gradients, "updated": applied, "needless_us": sure_us},
        fix=Fix(
            "Freeze what is not trained",
            "exact",
            "optimizer = torch.optim.AdamW(model.head.parameters(), ...)",
            "model.backbone.requires_grad_(False)\noptimizer = torch.optim.AdamW(model.head.parameters(), ...)",
        ),
        claims=claims,
    )


def _needless(trace: Trace, steps: Steps, nesting: Nesting, links: Links, applied: int) -> _Needless | None:
    """What the backward passes do after the last used gradient, None where all gradients may be used."""
    events = trace.events
    stores = np.flatnonzero(events.exactly(_STORES) & (links.step >= 0))
    if len(stores) <= applied:
        return None
    marks = _marks(trace, steps, nesting)
    call = np.searchsorted(marks, events.start_ns[stores])
    calls, numbers = np.unique(call, return_counts=True)
    if not len(calls) or numbers.max() <= applied:
        return None
    used = _updated_shapes(trace, nesting)
    nodes = np.flatnonzero(events.named(_NODE) & (nesting.outer_op == np.arange(len(events))) & (links.step >= 0))
    of_node = np.searchsorted(marks, events.start_ns[nodes])
    sure, possible = [], []
    for one in calls[numbers > applied].tolist():
        rows = stores[call == one]
        fits = np.array([_shape(trace, row) in used for row in rows.tolist()]) if used else np.ones(len(rows), bool)
        if not fits.any():
            return None
        last = int(events.end_ns[rows[np.flatnonzero(fits)[-1]]])
        first = int(events.end_ns[rows[np.flatnonzero(fits)[min(applied, int(fits.sum())) - 1]]])
        mine = nodes[of_node == one]
        sure.append(mine[events.start_ns[mine] >= last])
        possible.append(mine[events.start_ns[mine] >= first])
    return _Needless(np.concatenate(sure), np.concatenate(possible), int(numbers.max()))


def _marks(trace: Trace, steps: Steps, nesting: Nesting) -> Ints:
    """When something else than a backward pass begins on the loop's thread, ns: recorded ops and optimizer steps."""
    events = trace.events
    ops = events.of(Category.CPU_OP) & (nesting.outer_op == np.arange(len(events))) & (events.sequence >= 0)
    ops &= ~events.named(_NODE) & (events.forward_thread <= 0) & (events.thread == steps.main_thread)
    updates = events.of(Category.ANNOTATION) & events.named("Optimizer.step#")
    found: Ints = np.sort(events.start_ns[ops | updates])
    return found


def _shape(trace: Trace, row: int) -> str:
    """Shape of the gradient that is stored, as text."""
    dims = dims_of(trace.events, row)
    return str(dims[0]) if dims else ""


def _updated_shapes(trace: Trace, nesting: Nesting) -> set[str]:
    """Shapes of all tensors that ops inside an optimizer's step take."""
    events = trace.events
    updating = nesting.ancestor(events.of(Category.ANNOTATION) & events.named("Optimizer.step#")) >= 0
    rows = np.flatnonzero(events.of(Category.CPU_OP) & updating & (events.dims >= 0))
    shapes: set[str] = set()
    for index in np.unique(events.dims[rows], return_index=True)[1].tolist():
        for one in dims_of(events, int(rows[index])):
            lists = isinstance(one, list) and one and isinstance(one[0], list)
            shapes |= {str(shape) for shape in (one if lists else [one])}
    return shapes


def _forward_of(trace: Trace, nesting: Nesting, links: Links, nodes: Ints) -> Ints:
    """The outermost forward ops that recorded these nodes."""
    events = trace.events
    numbers = events.sequence[nodes]
    ops = events.of(Category.CPU_OP) & (events.forward_thread <= 0) & ~events.named("Backward") & (links.step >= 0)
    rows = np.flatnonzero(ops & np.isin(events.sequence, numbers[numbers >= 0]))
    outer: Ints = np.unique(nesting.outer_op[rows])
    return outer[outer >= 0]


def _node(number: int) -> Ev:
    return Ev(f"{_NODE}: AddmmBackward0", args={"Sequence number": number, "Fwd thread id": 1})


def _linear(number: int) -> Ev:
    return Ev("aten::linear", args={"Sequence number": number, "Fwd thread id": 0})


def _stored(*shape: int) -> Ev:
    return Ev(_STORES, dims=[list(shape)], launches="")


_STEPS = """
    step   [1                                    ][2                                    ]
    cpu    [A  ][B  ][Y ][T ][Z       ][S ][O ]    [C  ][D  ][W ][U ][X       ][V ][P ]
    cpu                                    [M]                                    [Q]
    """
_UPDATE = Ev("aten::_fused_adamw_", dims=[[[3, 512]], [[3, 512]]])  # type: ignore[list-item]


def _frozen(number: int) -> dict[str, object]:
    return {"optimizers": [{"name": "AdamW", "tensors": number}]}


def _drawn(head: tuple[int, ...], backbone: tuple[int, ...]) -> dict[str, object]:
    """A forward pass through a backbone (A) and a head (B), and its backward pass."""
    return draw(
        _STEPS,
        us=100,
        A=_linear(1),
        B=_linear(2),
        Y=_node(2),
        T=_stored(*head),
        Z=_node(1),
        S=_stored(*backbone),
        C=_linear(3),
        D=_linear(4),
        W=_node(4),
        U=_stored(*head),
        X=_node(3),
        V=_stored(*backbone),
        O=OPTIMIZER,
        P=OPTIMIZER,
        M=_UPDATE,
        Q=_UPDATE,
    )


EXAMPLES = [
    Example(
        "a new head on a network that is not trained",
        _drawn((3, 512), (512, 512)),
        facts=_frozen(1),
        saves_us=(800, 1700),
        says=("gradients of 2 parameters", "updates 1"),
    ),
    Example("all parameters are updated", _drawn((3, 512), (512, 512)), facts=_frozen(2), saves_us=None),
    Example(
        "what is trained comes last in the backward pass",
        _drawn((512, 512), (3, 512)),
        facts=_frozen(1),
        saves_us=None,
        near_miss=True,
    ),
]

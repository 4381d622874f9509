"""Gradients of tensors that are no parameters, the batch above all, which nothing reads after the backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.api import Category, Events, Ints, Nesting, Steps, Trace, backward_passes, dims_of, live_ops, shapes_in

from ._gradient_uses import INPUT, UNREAD

# Ops that look at a tensor without what it holds, or make a tensor of the next batch a leaf: they read no gradient.
_VIEWS = ("aten::detach", "detach", "aten::detach_", "aten::requires_grad_", "aten::view", "aten::alias", "aten::zero_")


def with_unread(
    trace: Trace,
    steps: Steps,
    nesting: Nesting,
    found: Sequence[backward_passes.Pass],
    verdicts: Sequence[Sequence[int]],
) -> list[list[int]]:
    """The verdicts, with UNREAD for an INPUT that no op reads before the next forward pass, nor in any like pass.

    Told by shapes: where something of the gradient's shape is worked on meanwhile, that may be the gradient.
    """
    if not any(INPUT in verdict for verdict in verdicts):
        return [list(verdict) for verdict in verdicts]
    several = evaluated_again(trace.events, found)
    ops = live_ops(trace, steps, nesting)
    # What makes a tensor of the next batch a leaf comes before that batch's first layer.
    live = trace.events.start_ns[ops]
    read = {
        (_form(one), at)
        for one, verdict in zip(found, verdicts, strict=True)
        for at, fate in enumerate(verdict)
        # What was not dropped before adds up, for someone to read it once.
        if fate == INPUT
        and (
            not one.stores[at].fresh
            or not several.isdisjoint(trace.events.sequence[list(one.nodes)].tolist())
            or _is_read(trace.events, live, one, one.stores[at].shape)
        )
    }
    return [
        [UNREAD if fate == INPUT and (_form(one), at) not in read else fate for at, fate in enumerate(verdict)]
        for one, verdict in zip(found, verdicts, strict=True)
    ]


def evaluated_again(events: Events, found: Sequence[backward_passes.Pass]) -> set[int]:
    """Numbers of nodes that several passes go through: a penalty on a slope asks for it in a pass of its own."""
    numbers = [np.unique(events.sequence[list(one.nodes)]) for one in found]
    every, times = np.unique(np.concatenate([np.empty(0, np.int64), *numbers]), return_counts=True)
    return set(every[(times > 1) & (every >= 0)].tolist())


def _form(one: backward_passes.Pass) -> tuple[int, ...]:
    return tuple(store.of for store in one.stores)


def _is_read(events: Events, live: Ints, one: backward_passes.Pass, shape: str) -> bool:
    """Whether an op between this pass and the next forward pass of the trace is given a tensor of that shape."""
    at = int(np.searchsorted(live, one.end_ns))
    until = int(live[at]) if at < len(live) else one.end_ns
    first, stop = np.searchsorted(events.start_ns, (one.end_ns, until)).tolist()
    rows = np.arange(first, stop)
    rows = rows[(events.dims[rows] >= 0) & events.of(Category.CPU_OP)[rows] & ~events.exactly(*_VIEWS)[rows]]
    return any(shape in shapes_in(dims_of(events, row)) for row in rows.tolist())

"""The losses that optimizers compute within their step: `optimizer.step(closure)`."""

from __future__ import annotations

import numpy as np

from advisor.trace.events import Category, Events
from advisor.trace.intervals import EMPTY, Intervals, union
from advisor.trace.op_names import AUTOGRAD_NODE


def closure_spans(events: Events) -> Intervals:
    """(n, 2) ns: where an optimizer's step runs a closure, on whichever thread.

    A closure holds a backward pass and lasts to the last node of it, or to the last op before the optimizer's own:
    callbacks may look at the gradients there (Lightning's `on_before_optimizer_step`). The first begins with the step:
    optimizers call it before anything else, and what is cleared within it may be cleared after the forward pass
    (Lightning). Those of a line search (LBFGS) begin with their `zero_grad`; what the optimizer computes between them
    is its own work.
    """
    of_step = events.of(Category.ANNOTATION, Category.CPU_OP)
    nodes = np.flatnonzero(of_step & events.named(AUTOGRAD_NODE))
    steps = np.flatnonzero(of_step & events.named("Optimizer.step#"))
    if not len(nodes) or not len(steps):
        return EMPTY
    node_start, node_end = events.start_ns[nodes], np.maximum.accumulate(events.end_ns[nodes])
    clears = np.sort(events.start_ns[of_step & events.named("Optimizer.zero_grad#")])
    found: list[tuple[int, int]] = []
    for row in steps.tolist():
        start, end = int(events.start_ns[row]), int(events.end_ns[row])
        first, last = np.searchsorted(node_start, (start, end))
        if first == last:
            continue
        inside = clears[(clears >= start) & (clears < end)]
        edges = [start, *inside.tolist(), end]
        stops = np.searchsorted(node_start, edges).tolist()
        runs = zip(edges, stops, stops[1:], strict=False)
        ends = [(edge, int(node_end[stop - 1])) for edge, begin, stop in runs if stop > begin]
        found += [(start, ends[0][1]), *ends[1:]]
        if len(ends) == 1:  # between the closures of a line search lies the optimizer's own work
            found[-1] = (found[-1][0], _end(events, row, found[-1][1], end))
    return union([one for one, _ in found], [other for _, other in found])


def _end(events: Events, step: int, last_node_ns: int, end_ns: int) -> int:
    """Where the last closure of a step ends: with its last node, or with the last op before those that update."""
    low, high = np.searchsorted(events.start_ns, (last_node_ns, end_ns))
    rows = low + np.flatnonzero(
        (events.category[low:high] == Category.CPU_OP) & (events.thread[low:high] == events.thread[step])
    )
    if not len(rows):
        return last_node_ns
    updates = np.flatnonzero(events.names_where(_updates)[events.name[rows]])
    before = rows[: updates[0]] if len(updates) else rows[:0]
    return int(events.end_ns[before].max(initial=last_node_ns))


def _updates(name: str) -> bool:
    """Whether an op changes tensors in place, as each optimizer's first ops do, which count its steps."""
    op = name.removeprefix("aten::")
    in_place = op.endswith("_") and not op.endswith("__") and name.startswith("aten::")
    return in_place or op.startswith(("_foreach_", "_fused_"))

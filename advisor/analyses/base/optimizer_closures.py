"""The losses that optimizers compute within their step: `optimizer.step(closure)`."""

from __future__ import annotations

import numpy as np

from advisor.trace.events import Category, Events
from advisor.trace.intervals import EMPTY, Intervals, union
from advisor.trace.op_names import AUTOGRAD_NODE


def closure_spans(events: Events) -> Intervals:
    """(n, 2) ns: where an optimizer's step runs a closure, on whichever thread.

    A closure holds a backward pass and lasts to the last node of it. The first begins with the step: optimizers call it
    before anything else, and what is cleared within it may be cleared after the forward pass (Lightning). Those of a
    line search (LBFGS) begin with their `zero_grad`; what the optimizer computes between them is its own work.
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
    return union([one for one, _ in found], [other for _, other in found])

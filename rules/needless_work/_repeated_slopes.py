"""Calls of torch.autograd.grad() from one output for several inputs, where one call gives all of these gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.api import FIRST_GRADIENT, Category, Events, Intervals, Ints, Nesting, Steps, backward_passes, shapes

from ._repeated_nodes import like_a_sum, node_key

Key = tuple[int, int]
Root = tuple[Key, int]  # a node, and which of its results
# Nodes of ops with one result: of others (unbind, split, max) two calls may start at different results, which the
# gradients that the node is given tell, where shapes were recorded.
_ONE_RESULT = (
    *("Mul", "Add", "Sub", "Rsub", "Div", "Neg", "Pow", "Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Silu", "Gelu"),
    *("Relu", "Softplus", "Sum", "Mean", "Addmm", "Mm", "Bmm", "Select", "Slice", "Squeeze", "Unsqueeze", "View"),
)
# Rows between the fill of an output's gradient and the first node: what the fill itself calls.
_NEAR = 8


class Slopes(Struct, frozen=True, eq=False):
    """What goes where one call takes the gradients of several inputs.

    rows     engine calls: evaluations of shared nodes but the first of each, and what later passes evaluate of their
             records although the first one's record would do
    sums     of these, those that take what adding up the gradients of branches would take
    calls    when the calls that repeat fill the output's gradient, until their first node
    groups   the passes of each output, in order
    shared   the most nodes that passes from one output have in common
    """

    rows: Ints
    sums: Ints
    calls: Intervals
    groups: tuple[tuple[backward_passes.Pass, ...], ...]
    shared: int


def slopes(events: Events, nesting: Nesting, steps: Steps, found: Sequence[backward_passes.Pass]) -> Slopes | None:
    """What is evaluated again; None where no output is differentiated twice."""
    groups = tuple(_groups(events, nesting, steps, found))
    again = [rows for group in groups for rows in _again(events, group)]
    if not again:
        return None
    records = [rows for group in groups for rows in _records(events, group, found)]
    every = sorted({row for rows in (*again, *records) for row in rows})
    sums = {row for rows in (*again, *records) for row in like_a_sum(events, rows)}
    return Slopes(
        rows=np.array(every, np.int64),
        sums=np.array(sorted(sums), np.int64),
        calls=np.array([_call(events, one) for group in groups for one in group[1:]], np.int64),
        groups=groups,
        shared=max(map(len, again)),
    )


def _groups(
    events: Events, nesting: Nesting, steps: Steps, found: Sequence[backward_passes.Pass]
) -> Iterator[tuple[backward_passes.Pass, ...]]:
    """Passes that start at one node, with the same gradient of it, and store nothing."""
    ops = np.flatnonzero(events.of(Category.CPU_OP) & nesting.outermost & (events.thread == steps.main_thread))
    by_root: dict[Root, list[backward_passes.Pass]] = defaultdict(list)
    for one in found:
        result = _result(events, one.nodes[0]) if one.nodes and not one.stores else -1
        root = node_key(events, one.nodes[0]) if result >= 0 else (-1, -1)
        if root[0] >= 0:
            by_root[root, result].append(one)
    for group in by_root.values():
        before = [_before(events, ops, one) for one in group]
        ones = [last >= 0 and events.text(last) == FIRST_GRADIENT for last in before]
        alike = [group[0]]
        for at in range(1, len(group)):
            # Without ones of its own it takes what was there: the ones of the first, or a row of several, as of a
            # Jacobian, which goes to the same inputs again. Inputs that were joined are behind one node.
            known = ones[0] or _other_inputs(events, group[at - 1], group[at])
            if (ones[0] and ones[at]) or (not ones[at] and known and _follows(events, before[at], group[at - 1])):
                alike.append(group[at])
        if len(alike) > 1:
            yield tuple(alike)


def _result(events: Events, row: int) -> int:
    """Which of its results a node gets the gradient of; -1 where that is not known, or where there are several."""
    name = events.text(row).rpartition(": ")[2]
    if name.rstrip("0123456789").removesuffix("Backward") in _ONE_RESULT:
        return 0
    for inner in backward_passes.inside(events, row):
        if events.text(inner) == name and events.dims[inner] >= 0:
            given = shapes(events.dims_table[events.dims[inner]])
            defined = [at for at, shape in enumerate(given) if shape]
            return defined[0] if len(defined) == 1 else -1
    return -1


def _before(events: Events, ops: Ints, one: backward_passes.Pass) -> int:
    """The last op of the loop's thread that began before a pass; -1 for none."""
    at = int(np.searchsorted(events.start_ns[ops], one.start_ns)) - 1
    return int(ops[at]) if at >= 0 else -1


def _follows(events: Events, last: int, before: backward_passes.Pass) -> bool:
    """Whether no op ran between two passes: both take a gradient that was there. last: the op before the second."""
    return last >= 0 and int(events.start_ns[last]) < before.end_ns


def _other_inputs(events: Events, before: backward_passes.Pass, one: backward_passes.Pass) -> bool:
    first, second = ({node_key(events, row) for row in each.nodes} for each in (before, one))
    return first != second


def _call(events: Events, one: backward_passes.Pass) -> tuple[int, int]:
    """(when the ones before a pass are filled, or its start; its start)."""
    at = int(np.searchsorted(events.start_ns, one.start_ns))
    near = np.arange(max(at - _NEAR, 0), at)
    filled = near[events.exactly(FIRST_GRADIENT)[near]]
    return (int(events.start_ns[filled[-1]]) if len(filled) else one.start_ns), one.start_ns


def _again(events: Events, group: Sequence[backward_passes.Pass]) -> Iterator[tuple[int, ...]]:
    """For each pass but the first the engine calls of nodes that passes before it went through."""
    seen: set[Key] = set()
    for number, one in enumerate(group):
        rows = tuple(row for row in one.nodes if events.sequence[row] >= 0 and node_key(events, row) in seen)
        if number and rows:
            yield rows
        seen.update(node_key(events, row) for row in one.nodes)


def _records(
    events: Events, group: Sequence[backward_passes.Pass], found: Sequence[backward_passes.Pass]
) -> Iterator[tuple[int, ...]]:
    """For each later pass what it evaluates of the records of several of these passes, the first one's left out."""
    recorded: dict[int, tuple[int, Key]] = {}
    for number, one in enumerate(group):
        for node in one.nodes:
            for row in backward_passes.inside(events, node):
                if events.sequence[row] >= 0 and events.forward_thread[row] <= 0:
                    recorded[int(events.sequence[row])] = (number, node_key(events, node))
    for later in found:
        if not recorded or later.start_ns < group[-1].end_ns:
            continue
        first: dict[Key, int] = {}
        rows = []
        for row in later.nodes:
            number, key = recorded.get(int(events.sequence[row]), (-1, (-1, -1)))
            if number >= 0 and first.setdefault(key, number) != number:
                rows.append(row)
        if rows:
            yield tuple(rows)

"""Backward passes that go through one graph again and again, each for another row of the same derivatives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.api import FIRST_GRADIENT, Events, Ints, StepOps, backward_passes, dims_of, sizes, with_backward

Key = tuple[int, int]
# Nodes of ops that take a part of a tensor, or its sum: those of a pass's own, before the ones that all share.
_PICKS = (
    *("Select", "Slice", "Sum", "Mean", "Index", "Diagonal", "Unbind", "Split", "View", "UnsafeView", "Reshape"),
    *("ReshapeAlias", "Squeeze", "Unsqueeze", "Expand", "Permute", "Transpose", "T", "Alias", "Unfold"),
)
# Of these, those with several results: passes that begin at one of them may begin at different results.
_RESULTS = ("Unbind", "Split", "SplitWithSizes", "Chunk")
# Ops that a call of grad() is given its output and its gradient by.
_LEADS = (
    *("select", "slice", "sum", "mean", "index", "diagonal", "view", "reshape", "_reshape_alias", "squeeze"),
    *("unsqueeze", "expand", "permute", "transpose", "t", "ones", "ones_like", "fill_", "narrow"),
)
_ROWS = ("aten::select", "aten::slice", "aten::narrow")
_LEAD_NAMES = tuple(f"aten::{name}" for name in _LEADS)


class RowsOfPasses(Struct, frozen=True, eq=False):
    """Passes of one graph in one step, each of which takes another row.

    passes  so many;  firsts: the first engine call of each
    lead    ops that pick the rows;  nodes: engine calls of the passes, and of what they recorded
    picks   of these the nodes of what picks the rows: no other call takes their place
    shared  nodes that all of them evaluate
    """

    passes: int
    firsts: Ints
    lead: Ints
    nodes: Ints
    picks: Ints
    shared: int


def rows_of_passes(ops: StepOps, found: Sequence[backward_passes.Pass], least: int) -> Iterator[RowsOfPasses]:
    """Each group of at least so many passes."""
    events = ops.events
    by_step: dict[int, list[int]] = defaultdict(list)
    for at, step in enumerate(ops.steps.step_of(np.array([one.start_ns for one in found], np.int64)).tolist()):
        by_step[step].append(at)
    for ats in by_step.values():
        mine = [at for at in ats if found[at].nodes and not found[at].stores]
        keys = {at: [_key(events, row) for row in found[at].nodes] for at in mine}
        times = Counter(key for each in keys.values() for key in set(each) if key[0] >= 0)
        groups: dict[frozenset[Key], list[int]] = defaultdict(list)
        for at in mine:
            groups[frozenset(key for key in keys[at] if times[key] > 1)].append(at)
        for shared, group in groups.items():
            if shared and len(group) >= least and (one := _group(ops, found, group, shared)):
                yield one


def _group(
    ops: StepOps, found: Sequence[backward_passes.Pass], group: Sequence[int], shared: frozenset[Key]
) -> RowsOfPasses | None:
    """These passes; None where each is not known to take a row of its own, whatever the ones before it gave."""
    events, calls = ops.events, ops.outermost
    passes = [found[at] for at in group]
    own = [
        [row for row in one.nodes if events.sequence[row] >= 0 and _key(events, row) not in shared] for one in passes
    ]
    if not all(_picks(events, row) for rows in own for row in rows):
        return None
    ends = [found[at - 1].end_ns if at else 0 for at in group]
    leads = [_lead(events, calls, end_ns, one.start_ns) for end_ns, one in zip(ends, passes, strict=True)]
    apart = all(own) or _node_name(events, passes[0].nodes[0]) in _RESULTS
    if not apart and not all(_is_unit(events, lead, len(group)) for lead in leads):
        return None
    nodes = np.array([row for one in passes for row in one.nodes], np.int64)
    every = with_backward(events, nodes)
    every = every[ops.nesting.outermost[every]]
    picked = np.isin(every, [row for rows in own for row in rows])
    return RowsOfPasses(
        passes=len(group),
        firsts=np.array([one.nodes[0] for one in passes], np.int64),
        lead=np.array([row for lead in leads for row in lead], np.int64),
        nodes=every,
        picks=every[picked],
        shared=len(shared),
    )


def _key(events: Events, row: int) -> Key:
    """What tells a node from all others: the number of the forward op and its thread."""
    return int(events.sequence[row]), int(events.forward_thread[row])


def _node_name(events: Events, row: int) -> str:
    return events.text(row).rpartition(": ")[2].rstrip("0123456789").removesuffix("Backward")


def _picks(events: Events, row: int) -> bool:
    return _node_name(events, row) in _PICKS


def _lead(events: Events, calls: Ints, since_ns: int, start_ns: int) -> list[int]:
    """The last ops before a pass, as far as they give it what it begins with."""
    low, stop = np.searchsorted(events.start_ns[calls], (since_ns, start_ns)).tolist()
    found: list[int] = []
    for row in calls[low:stop][::-1].tolist():
        if events.text(row) not in _LEAD_NAMES:
            break
        found.append(row)
    return found[::-1]


def _is_unit(events: Events, lead: Sequence[int], passes: int) -> bool:
    """Whether a pass is given a row of a unit matrix: all gradients are known before the first pass.

    A gradient that the result of the pass before gives, as in a power iteration, comes of arithmetic.
    """
    rows = [row for row in lead if events.text(row) in _ROWS]
    if not rows or any(events.text(row) == FIRST_GRADIENT for row in lead):
        return False
    shape = sizes(dims_of(events, rows[0]), 0)
    return len(shape) > 1 and shape[0] == shape[-1] >= passes

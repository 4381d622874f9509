"""Nodes of autograd's graph that several backward passes evaluate, for gradients that are only added up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from advisor.api import (
    AUTOGRAD_NODE,
    FIRST_GRADIENT,
    Category,
    Events,
    Intervals,
    Ints,
    Nesting,
    Trace,
    backward_passes,
    dims_of,
    is_layer,
    shapes_in,
    sizes,
)

Key = tuple[int, int]

_CLEARS = "Optimizer.zero_grad#"


class Repeated(Struct, frozen=True, eq=False):
    """What goes where each node of a graph is evaluated once.

    rows     engine calls: evaluations of shared nodes but the first of each, and what they add to stored gradients
    sums     of these, one for each pass that takes what adding up the branches' gradients would take
    firsts   the first engine call of each pass whose nodes others repeat
    roots    the first engine call of each pass that repeats nodes
    calls    when the calls that start such passes fill their first gradient, until the first engine call
    spans    when the loop has nothing to do but what goes: from the op before such a call on, and what the engine does
             between repeated nodes
    shared   the most nodes that passes over one graph have in common
    passes   the most passes over one graph
    """

    rows: Ints
    sums: Ints
    firsts: Ints
    roots: Ints
    calls: Intervals
    spans: Intervals
    shared: int
    passes: int


def repeated(trace: Trace, nesting: Nesting, found: Sequence[backward_passes.Pass]) -> Repeated | None:
    """What is evaluated again; None where every pass has a graph of its own."""
    events = trace.events
    again = list(_again(trace, nesting, found))
    if not again:
        return None
    fills = np.flatnonzero(events.exactly(FIRST_GRADIENT))
    starts = [_call(events, fills, one.before, one.now) for one in again]
    spans = [(since_ns, call[1]) for call, since_ns in starts]
    spans += [span for one in again for span in _runs(events, one.now, {*one.nodes, *one.added})]
    return Repeated(
        rows=np.array(sorted(row for one in again for row in (*one.nodes, *one.added)), np.int64),
        sums=np.array(sorted(row for one in again for row in like_a_sum(events, one.nodes)), np.int64),
        firsts=np.array([one.before.nodes[0] for one in again if one.number == 2], np.int64),
        roots=np.array([one.now.nodes[0] for one in again], np.int64),
        calls=np.array([call for call, _ in starts], np.int64),
        spans=np.array(spans, np.int64),
        shared=max(len(one.nodes) for one in again),
        passes=max(one.number for one in again),
    )


class _Again(Struct, frozen=True):
    """A pass over a graph that passes before it went through: the nodes it repeats, and what it adds to gradients."""

    before: backward_passes.Pass
    now: backward_passes.Pass
    number: int  # which of the passes over this graph it is, from 2 on
    nodes: tuple[int, ...]
    added: tuple[int, ...]


def _again(trace: Trace, nesting: Nesting, found: Sequence[backward_passes.Pass]) -> Iterator[_Again]:
    events = trace.events
    anew = _recorded_inside(trace, nesting, found)
    breaks = np.flatnonzero(events.of(Category.ANNOTATION) & events.named(backward_passes.UPDATES, _CLEARS))
    before: backward_passes.Pass | None = None
    number, seen = 1, set[Key]()
    for one in found:
        if not one.stores or not anew.isdisjoint(one.nodes):
            continue
        nodes = tuple(row for row in one.nodes if node_key(events, row) in seen)
        added = _added(one, set(nodes))
        if before is not None and nodes and added and _untouched(events, nesting, breaks, before, one, added):
            number += 1
            yield _Again(before, one, number, nodes, added)
        else:
            number, seen = 1, set()
        before, seen = one, seen | _keys(events, one)


def node_key(events: Events, row: int) -> Key:
    """What tells a node from all others: the number of the forward op and its thread."""
    return int(events.sequence[row]), int(events.forward_thread[row])


def _keys(events: Events, one: backward_passes.Pass) -> set[Key]:
    return {node_key(events, row) for row in one.nodes if events.sequence[row] >= 0}


def _recorded_inside(trace: Trace, nesting: Nesting, found: Sequence[backward_passes.Pass]) -> set[int]:
    """Engine calls inside of which ops are recorded: of passes that are differentiated, or that compute layers anew."""
    events = trace.events
    ops = events.of(Category.CPU_OP) & (events.sequence >= 0) & (events.forward_thread <= 0)
    outer = nesting.outer_op.compress(ops & ~events.named(AUTOGRAD_NODE, "Backward"))
    calls = np.zeros(len(events), bool)
    calls[[row for one in found for row in one.nodes]] = True
    return set(outer[calls[outer]].tolist())


def _added(one: backward_passes.Pass, again: set[int]) -> tuple[int, ...]:
    """The engine calls that add gradients of repeated nodes to stored ones; none where some had been dropped."""
    stores = [store for store in one.stores if store.of >= 0 and one.nodes[store.of] in again]
    return () if any(store.fresh for store in stores) else tuple(store.node for store in stores)


def _untouched(
    events: Events,
    nesting: Nesting,
    breaks: Ints,
    before: backward_passes.Pass,
    one: backward_passes.Pass,
    added: Sequence[int],
) -> bool:
    """Whether nothing between two passes takes the gradients that the first one stored.

    They have the shapes of the weights. A layer takes the weights themselves: those of the next part of a sequence do.
    """
    first, stop = np.searchsorted(events.start_ns, (before.end_ns, one.start_ns)).tolist()
    if np.any((breaks >= first) & (breaks < stop)):
        return False
    mine = {store.shape for store in one.stores if store.node in set(added)}
    # Biases are of the shapes of much else; who reads gradients reads those of the weights.
    weights = {shape for shape in mine if "," in shape} or mine
    between = np.arange(first, stop)
    known = between[(events.dims[between] >= 0) & (nesting.outer_op[between] >= 0)]
    layers = {outer for outer in np.unique(nesting.outer_op[known]).tolist() if is_layer(events, outer)}
    known = known[~np.isin(nesting.outer_op[known], list(layers))]
    return not any(weights & set(shapes_in(dims_of(events, row))) for row in known.tolist())


def _call(
    events: Events, fills: Ints, before: backward_passes.Pass, one: backward_passes.Pass
) -> tuple[tuple[int, int], int]:
    """(when the call that starts a pass fills the loss's gradient until the first node, when the op before ended)."""
    first, stop = np.searchsorted(events.start_ns, (before.end_ns, one.start_ns)).tolist()
    here = fills[(fills >= first) & (fills < stop)]
    at = int(here[-1]) if len(here) else stop
    start_ns = int(events.start_ns[at]) if len(here) else one.start_ns
    return (start_ns, one.start_ns), int(np.max(events.end_ns[first:at], initial=before.end_ns))


def _runs(events: Events, one: backward_passes.Pass, goes: set[int]) -> list[tuple[int, int]]:
    """The spans of a pass in which one engine call after the other goes."""
    spans: list[tuple[int, int]] = []
    last = False
    for row in sorted({*one.nodes, *(store.node for store in one.stores)}):
        if row in goes:
            start_ns = spans.pop()[0] if last else int(events.start_ns[row])
            spans.append((start_ns, int(events.end_ns[row])))
        last = row in goes
    return spans


def like_a_sum(events: Events, again: Sequence[int]) -> list[int]:
    """The repeated engine call that takes what a sum takes where branches meet: it works on two tensors of that size.

    The first node that a pass has in common with others is where its branch joins theirs.
    """
    rows = backward_passes.inside(events, again[0])
    joined = sizes(dims_of(events, rows[0]), 0) if rows else ()
    alike = [
        row
        for row in again
        if joined and any(_on_two(events, op, joined) for op in backward_passes.inside(events, row))
    ]
    return [min(alike, key=lambda row: int(events.dur_ns[row]))] if alike else []


def _on_two(events: Events, row: int, shape: tuple[int, ...]) -> bool:
    dims = dims_of(events, row)
    return sizes(dims, 0) == shape == sizes(dims, 1)

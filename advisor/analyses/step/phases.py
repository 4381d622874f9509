"""The phases of a training step on the main thread."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import communication_rows
from advisor.analyses.base.host_communication import HostCommunication
from advisor.analyses.base.optimizer_closures import closure_spans
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.input_wait import fetch_rows
from advisor.trace.events import Category, Events, Ints, Mask, Numbers, Trace
from advisor.trace.intervals import EMPTY, Intervals, intersect, merge, subtract
from advisor.trace.op_names import AUTOGRAD_NODE


class Phases(Struct, frozen=True, eq=False):
    """Phases of the main thread in W; each instant belongs to the first that applies. Their union is W.

    input          in a fetch from the loader
    communication  host communication on any thread while no op computes on the main thread
    optimizer      in `Optimizer.step` or `Optimizer.zero_grad`, including Python between their ops; what a closure
                   computes within the step counts as it would outside
    backward       in the autograd engine: from node to node, as long as no other op comes between
    forward        in ops before a backward pass, if no fetch, optimizer step or step boundary is in between. Steps that
                   are detected by their optimizer or backward pass end where a backward pass begins: such a boundary is
                   within the forward pass and is ignored; ops without a graph before it (an evaluation) are excluded
    other_ops      in other ops
    host           in no op: Python
    """

    input: Intervals
    communication: Intervals
    forward: Intervals
    backward: Intervals
    optimizer: Intervals
    other_ops: Intervals
    host: Intervals

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, talk: HostCommunication) -> Phases:
        """Phases of this rank."""
        events = trace.events
        window = steps.window
        on_loop = events.thread == steps.main_thread

        def spans(rows: Mask) -> Intervals:
            return intersect(events.covered(rows), window)

        by_optimizer = steps.source in ("optimizer", "backward")  # both begin a step with its backward pass
        kinds = _kinds(events, on_loop, by_optimizer)
        fetching = spans(fetch_rows(events) & on_loop)
        backward = intersect(_backward_spans(events, kinds), window)
        clearing = spans(events.named("Optimizer.zero_grad#") & optimizer_rows(events) & on_loop)
        updating = subtract(spans(optimizer_rows(events) & on_loop), backward)
        updating = merge(subtract(updating, closure_spans(events)), clearing)
        ops = spans(on_loop & events.of(Category.CPU_OP))
        forward = intersect(_forward_spans(events, kinds, by_optimizer), ops)
        # While the loop's thread computes, communication on another thread is hidden behind it; inside an op that
        # hands work to that thread, or waits for it, it does not compute.
        computing = spans(on_loop & events.of(Category.CPU_OP) & ~communication_rows(events))
        computing = subtract(computing, merge(spans(on_loop & _waiting(events)), _sharding(events, on_loop)))
        talking = subtract(talk.spans, computing)
        parts = _first_match(
            window,
            {
                "input": fetching,
                "communication": talking,
                "optimizer": updating,
                "backward": backward,
                "forward": forward,
                "other_ops": ops,
                "host": window,
            },
        )
        return cls(**parts)


def optimizer_rows(events: Events) -> Mask:
    """`Optimizer.step#…` and `Optimizer.zero_grad#…` rows."""
    return events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("Optimizer.step#", "Optimizer.zero_grad#")


def backward_rows(events: Events) -> Mask:
    """Rows of the autograd engine: one per node of the graph."""
    return events.of(Category.CPU_OP, Category.ANNOTATION) & events.named(AUTOGRAD_NODE)


def _waiting(events: Events) -> Mask:
    """Ops that only wait for communication which another thread carries out."""
    return events.named("c10d::", "record_param_comms", "wait_tensor")


def _sharding(events: Events, on_loop: Mask) -> Intervals:
    """Where the loop gathers or reduces shards without an op: it waits, if within an op of the autograd engine."""
    rows = on_loop & events.of(Category.ANNOTATION) & events.named("FSDP::", "FullyShardedDataParallel._")
    spans = events.covered(rows)
    if not len(spans):
        return EMPTY
    ops = np.flatnonzero(on_loop & events.of(Category.CPU_OP) & ~communication_rows(events) & ~_waiting(events))
    at = np.searchsorted(spans[:, 0], events.start_ns[ops], side="right") - 1
    inside = ops[(at >= 0) & (events.end_ns[ops] <= spans[np.maximum(at, 0), 1])]
    return subtract(spans, events.covered(inside))


def backward_spans(trace: Trace, steps: Steps) -> Intervals:
    """Where the loop's thread is in the autograd engine, communication included."""
    on_loop = trace.events.thread == steps.main_thread
    return intersect(_backward_spans(trace.events, _kinds(trace.events, on_loop)), steps.window)


_OP, _BACKWARD, _EDGE = 1, 2, 3


def _kinds(events: Events, on_loop: Mask, by_optimizer: bool = False) -> tuple[Ints, Numbers]:
    """The outermost rows of the loop's thread that tell phases apart: (rows by start, kind of each)."""
    kind = np.zeros(len(events), np.int8)
    kind[on_loop & events.of(Category.CPU_OP)] = _OP
    edges = on_loop & (fetch_rows(events) | optimizer_rows(events))
    if not by_optimizer:
        edges |= on_loop & events.named("ProfilerStep#")
    kind[edges & ~events.named("Optimizer.zero_grad#")] = _EDGE
    kind[on_loop & backward_rows(events)] = _BACKWARD
    rows = np.flatnonzero(kind)
    # Of nested rows of one kind only the outermost matters.
    for one in (_OP, _BACKWARD):
        same = rows[kind[rows] == one]
        reach = np.maximum.accumulate(events.end_ns[same]) if len(same) else same
        kind[same[1:][events.end_ns[same[1:]] <= reach[:-1]]] = 0
    rows = rows[kind[rows] > 0]
    return rows, kind[rows]


def _backward_spans(events: Events, kinds: tuple[Ints, Numbers]) -> Intervals:
    """Runs of the autograd engine: from one node to the next, as long as nothing else comes between."""
    rows, kind = kinds
    node = np.flatnonzero(kind == _BACKWARD)
    if not len(node):
        return EMPTY
    nested = _inside(events, rows, node)
    kept = np.flatnonzero(~nested)
    rows, kind = rows[kept], kind[kept]
    is_node = kind == _BACKWARD
    first = is_node & np.concatenate(([True], ~is_node[:-1]))
    last = is_node & np.concatenate((~is_node[1:], [True]))
    ends = np.maximum.accumulate(np.where(is_node, events.end_ns[rows], 0))
    return np.column_stack((events.start_ns[rows[first]], ends[last]))


def _inside(events: Events, rows: Ints, node: Ints) -> Mask:
    """Which of the rows lie inside one of the given nodes (the nodes themselves do not count)."""
    reach = np.full(len(rows), -1, np.int64)
    reach[node] = events.end_ns[rows[node]]
    reach = np.maximum.accumulate(reach)
    inside = events.end_ns[rows] <= np.concatenate(([-1], reach[:-1]))
    inside[node] = False
    return inside


def _forward_spans(events: Events, kinds: tuple[Ints, Ints], by_optimizer: bool) -> Intervals:
    """Ops that are followed by the autograd engine before the next fetch, optimizer step or step."""
    rows, kind = kinds
    edge = np.where(kind == _OP, len(kind), np.arange(len(kind)))
    following = np.minimum.accumulate(edge[::-1])[::-1]
    leads = (kind == _OP) & (following < len(kind)) & (kind[np.minimum(following, len(kind) - 1)] == _BACKWARD)
    if by_optimizer:
        leads &= _since_a_graph(events, rows, following)
    return events.covered(rows[leads])


def _since_a_graph(events: Events, rows: Ints, following: Ints) -> Mask:
    """Which ops come after the first since the last edge that autograd recorded; all where the trace does not tell.

    An op carries the number of nodes recorded before it; the next op's is higher where it made one. following: the
    index of the next edge of each row, equal for ops between the same edges.
    """
    number = events.sequence[rows]
    at = np.flatnonzero((number >= 0) & (following != np.arange(len(rows))))
    if not len(at):
        return np.ones(len(rows), bool)
    last = np.append(following[at][1:] != following[at][:-1], True)
    made = at[last | (np.append(number[at][1:], 0) > number[at])]
    first = np.full(len(rows) + 1, len(rows))
    np.minimum.at(first, following[made], made)
    since: Mask = np.arange(len(rows)) >= first[following]
    return since


def _first_match(window: Intervals, parts: dict[str, Intervals]) -> dict[str, Intervals]:
    """Disjoint parts of W: what an earlier part holds, a later one does not."""
    left, result = window, {}
    for name, spans in parts.items():
        result[name] = intersect(left, spans)
        left = subtract(left, spans)
    return result

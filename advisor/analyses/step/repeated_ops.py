"""Loops that a trace without call stacks shows: ops that the loop's thread runs again and again within one step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.trace.events import Category, Events, Ints, Mask
from advisor.trace.intervals import Intervals, intersect, starts_in, total, union
from advisor.trace.numbers import numbered
from advisor.trace.op_names import AUTOGRAD_NODE

# Ops of one iteration: more are a model rather than the body of a loop.
_MOST_OPS = 64
# A model's layers come again, too: the deepest published ones that are trained this way have some 130
# (Llama 3.1 405B: 126), and each has weights. Without weights in them so many iterations are no layers.
_LAYERS, _ITERATIONS = 160, 32
_WEIGHTS = (
    "aten::linear",
    "aten::addmm",
    "aten::matmul",
    "aten::_scaled_mm",
    "aten::conv",
    "aten::layer_norm",
    "aten::rms_norm",
    "aten::batch_norm",
    "aten::group_norm",
    "aten::embedding",
)
# The experts of a mixture ask which rows they take (`nonzero`, also within `where` or an index), and add theirs to the
# others'; layers do not do both, but for those of a graph, which normalise or attend as well. Published mixtures have
# eight experts and more.
_OF_LAYERS = tuple(
    f"aten::{name}" for name in ("layer_norm", "batch_norm", "group_norm", "rms_norm", "scaled_dot_product", "softmax")
)
_ASKS, _ADDS, _EXPERTS = "aten::nonzero", ("aten::index_add", "aten::index_put", "aten::scatter_add"), 8
# Names of an optimizer's loop over parameters: rules of their own look at it.
_OPTIMIZER = ("Optimizer.step#", "Optimizer.zero_grad#")


class OpLoop(Struct, frozen=True):
    """A sequence of ops that follows on itself.

    ops         names of the ops of one iteration, in order
    iterations  how often it runs in a step in which it runs at all, at most
    routed      each iteration has weights, and asks which rows it takes: experts of a mixture, one after the other
    """

    ops: tuple[str, ...]
    iterations: int
    routed: bool = False


class RepeatedOps(Struct, frozen=True, eq=False):
    """Loops of the steps, longest first; the time in them and in their backward passes, ns on the trace's clock.

    rows: their ops, and the nodes of their backward passes. Only what does the same in each iteration is seen.
    """

    loops: tuple[OpLoop, ...]
    spans: Intervals
    rows: Ints

    def share(self, times: Intervals) -> float:
        """The part of these intervals that lies within the loops, 0 to 1."""
        whole = total(times)
        return total(intersect(times, self.spans)) / whole if whole else 0.0

    @classmethod
    def compute(cls, ops: StepOps) -> RepeatedOps:
        """The loops of a trace; none where ops were not recorded."""
        events = ops.events
        rows = ops.outermost
        marked = events.of(Category.ANNOTATION) & events.named(*_OPTIMIZER)
        rows = rows[~starts_in(events.start_ns[rows], events.covered(marked))]
        names, step = events.name[rows], ops.links.step[rows]
        kinds = _Kinds.of(ops, rows)
        found: dict[tuple[str, ...], tuple[int, int, bool]] = {}  # ops of an iteration: iterations, time, routed
        spans, within = [], np.zeros(len(rows), bool)
        for first, last, length in _sequences(names, step, kinds):
            body = names[first : first + length]
            start, end = int(events.start_ns[rows[first]]), int(events.end_ns[rows[last - 1]])
            spans.append((start, end))
            within[first:last] = True
            key = tuple(events.names[name].removeprefix("aten::") for name in body.tolist())
            most, took, _ = found.get(key, (0, 0, False))
            routed = kinds.routed(first, last, length)
            found[key] = max(most, (last - first) // length), took + end - start, routed
        longest = sorted(found.items(), key=lambda one: -one[1][1])
        times = np.array(spans, np.int64).reshape(-1, 2)
        nodes, later = _backward(events, times) if spans else (rows[:0], times)
        times = np.concatenate((times, later))
        return cls(
            tuple(OpLoop(key, most, routed) for key, (most, _, routed) in longest),
            union(times[:, 0], times[:, 1]),
            np.sort(np.concatenate((rows[within], nodes))),
        )


class _Kinds(Struct, frozen=True, eq=False):
    """Of a thread's outermost ops: which have weights, ask which rows there are, add rows to others, are of layers."""

    weights: Mask
    asks: Mask
    adds: Mask
    layers: Mask

    @classmethod
    def of(cls, ops: StepOps, rows: Ints) -> _Kinds:
        events = ops.events

        def named(*starts: str) -> Mask:
            return events.names_where(lambda name: name.startswith(starts))

        asks = np.zeros(len(events), bool)
        asks[ops.nesting.outer_op[np.flatnonzero(events.exactly(_ASKS))]] = True
        weights, adds, layers = (events.rows_with(named(*starts))[rows] for starts in (_WEIGHTS, _ADDS, _OF_LAYERS))
        return cls(weights, asks[rows], adds, layers)

    def routed(self, first: int, last: int, length: int) -> bool:
        """Whether each iteration of these ops is an expert's."""
        body = slice(first, first + length)
        asked = int(self.asks[first:last].sum()) >= (last - first) // length
        return asked and bool(self.weights[body].any() and self.adds[body].any() and not self.layers[body].any())

    def least(self, first: int, last: int, length: int) -> int:
        """From how many iterations on this is a loop and no layers."""
        if self.routed(first, last, length):
            return _EXPERTS
        return _LAYERS if self.weights[first : first + length].any() else _ITERATIONS


def _backward(events: Events, spans: Ints) -> tuple[Ints, Ints]:
    """Nodes of the backward pass of what ran in these spans, and the times in which one follows on the other."""
    nodes = np.flatnonzero(events.named(AUTOGRAD_NODE))
    nodes = nodes[np.argsort(events.start_ns[nodes], kind="stable")]
    ops = np.flatnonzero(events.of(Category.CPU_OP) & (events.sequence >= 0) & ~events.named(AUTOGRAD_NODE))
    ops = ops[starts_in(events.start_ns[ops], union(spans[:, 0], spans[:, 1]))]
    known = events.sequence[nodes] >= 0
    mine = known & np.isin(events.sequence[nodes], events.sequence[ops])
    # Nodes without a number, which add up the gradients of weights, belong to those around them.
    latest = np.maximum.accumulate(np.where(known, np.arange(len(nodes)), -1))
    mine |= ~known & (latest >= 0) & mine[latest]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mine, [False])).astype(np.int8))).reshape(-1, 2)
    times = np.stack((events.start_ns[nodes[edges[:, 0]]], events.end_ns[nodes[edges[:, 1] - 1]]), axis=1)
    return nodes[mine], times.astype(np.int64).reshape(-1, 2)


def _sequences(names: Ints, step: Ints, kinds: _Kinds) -> Iterator[tuple[int, int, int]]:
    """First op, the op behind the last one, and ops per iteration of all that repeats, the shortest bodies first."""
    free = np.ones(len(names), bool)
    code = numbered(names)[1] * (int(step.max(initial=0)) + 1) + step  # equal where both are
    for length in range(1, min(_MOST_OPS, len(names) // _EXPERTS) + 1):
        # `alike` begins where the second iteration does.
        alike = np.flatnonzero((code[length:] == code[:-length]) & free[length:])
        ends = np.flatnonzero(np.diff(alike, append=-1) != 1)
        firsts = np.append(0, ends + 1)[:-1]
        long = ends - firsts + 1 >= (_EXPERTS - 1) * length
        for first, last in zip(alike[firsts[long]].tolist(), (alike[ends[long]] + 1).tolist(), strict=True):
            if last - first >= (kinds.least(first, last + length, length) - 1) * length:
                free[first : last + length] = False
                yield first, last + length, length

"""Loops that a trace without call stacks shows: ops that the loop's thread runs again and again within one step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.trace.events import Category, Ints
from advisor.trace.intervals import EMPTY, Intervals, intersect, starts_in, total, union

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
# Names of an optimizer's loop over parameters: rules of their own look at it.
_OPTIMIZER = ("Optimizer.step#", "Optimizer.zero_grad#")


class OpLoop(Struct, frozen=True):
    """A sequence of ops that follows on itself.

    ops         names of the ops of one iteration, in order
    iterations  how often it runs in a step in which it runs at all, at most
    """

    ops: tuple[str, ...]
    iterations: int


class RepeatedOps(Struct, frozen=True, eq=False):
    """Loops of the steps, longest first; the time of the loop's thread in them, ns on the trace's clock; their ops.

    Only what does the same in each iteration is seen, and nothing of a backward pass, which has a thread of its own.
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
        rows = rows[~starts_in(events.start_ns[rows], union(events.start_ns[marked], events.end_ns[marked]))]
        names, step = events.name[rows].astype(np.int64), ops.steps.step_of(events.start_ns[rows])
        weights = np.array([name.startswith(_WEIGHTS) for name in events.names], bool)
        found: dict[tuple[str, ...], tuple[int, int]] = {}  # ops of an iteration: iterations, time
        spans, within = [], np.zeros(len(rows), bool)
        for first, last, length in _sequences(names, step):
            body = names[first : first + length]
            iterations = (last - first) // length
            if iterations < (_LAYERS if weights[body].any() else _ITERATIONS):
                continue
            start, end = int(events.start_ns[rows[first]]), int(events.end_ns[rows[last - 1]])
            spans.append((start, end))
            within[first:last] = True
            key = tuple(events.names[name].removeprefix("aten::") for name in body.tolist())
            most, took = found.get(key, (0, 0))
            found[key] = max(most, iterations), took + end - start
        longest = sorted(found.items(), key=lambda one: -one[1][1])
        times = np.array(spans, np.int64) if spans else EMPTY
        return cls(
            tuple(OpLoop(key, most) for key, (most, _) in longest), union(times[:, 0], times[:, 1]), rows[within]
        )


def _sequences(names: Ints, step: Ints) -> Iterator[tuple[int, int, int]]:
    """First op, the op behind the last one, and ops per iteration of all that repeats, the shortest bodies first."""
    taken = np.zeros(len(names), bool)
    for length in range(1, min(_MOST_OPS, len(names) // _ITERATIONS) + 1):
        alike = (names[length:] == names[:-length]) & (step[length:] == step[:-length]) & ~taken[length:]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], alike, [False])).astype(np.int8)))
        for first, last in edges.reshape(-1, 2).tolist():
            # `alike` begins where the second iteration does.
            if last - first >= (_ITERATIONS - 1) * length:
                taken[first : last + length] = True
                yield first, last + length, length

"""Lines of the user's code that call the same short op again and again within a step."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.api import Breakdown, Category, LineCost, LineCosts, Links, Nesting, Steps, Trace, starts_in

from ._blocks import TURNS, is_python

# An op that takes longer than this on a CPU has work to do besides being called.
_SHORT_OP_US = 60.0
# Ops with weights of their own: called no more often than there are weights, they are layers and no loop.
_LAYERS = ("aten::linear", "aten::conv", "aten::layer_norm", "aten::batch_norm", "aten::group_norm", "aten::embedding")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Loop:
    """A line that turns: how often a step, the op that it calls most often, and calls of ops with weights a step."""

    turns: float
    op: str
    layers: float


def outermost(trace: Trace, steps: Steps, nesting: Nesting, links: Links, breakdown: Breakdown) -> Ints:
    """Ops that a line of the loop's thread called itself: not the loader's, the optimizer's or the backward pass's."""
    events = trace.events
    rows = events.of(Category.CPU_OP) & (nesting.outer_op == np.arange(len(events))) & (links.step >= 0)
    found = np.flatnonzero(rows & (events.thread == steps.main_thread))
    for part in ("input", "backward", "optimizer"):
        if (spans := breakdown.intervals.get(part)) is not None:
            found = found[~starts_in(events.start_ns[found], spans)]
    return found


def layers_of(trace: Trace, steps: Steps, costs: LineCosts, rows: Ints) -> dict[int, float]:
    """By index of the line how many ops with weights of their own it calls per step."""
    events = trace.events
    layers = np.array([name.startswith(_LAYERS) for name in events.names], bool)
    lines = costs.op_line[rows[layers[events.name[rows]]]] if len(events.names) else rows
    return {line: calls / steps.count for line, calls in Counter(lines[lines >= 0].tolist()).items()}


def loops(trace: Trace, steps: Steps, costs: LineCosts, rows: Ints) -> dict[int, Loop]:
    """By index of the line those that call one short op again and again."""
    events = trace.events
    layers = layers_of(trace, steps, costs, rows)
    by_line: dict[int, list[int]] = defaultdict(list)
    for row, line in zip(rows.tolist(), costs.op_line[rows].tolist(), strict=True):
        if line >= 0 and costs.lines[line].source.precision == "call":
            by_line[line].append(row)
    found = {}
    for line, called in by_line.items():
        cost = costs.lines[line]
        name, calls = Counter(events.name[called].tolist()).most_common(1)[0]
        mean_us = float(events.dur_ns[called].sum()) / 1e3 / max(cost.rows * steps.count, 1.0)
        turns = _turns(cost, calls / steps.count)
        if turns >= TURNS and not is_python(cost) and mean_us <= _SHORT_OP_US:
            found[line] = Loop(turns, events.names[name].removeprefix("aten::"), layers.get(line, 0.0))
    return found


def _turns(cost: LineCost, calls: float) -> float:
    """How often a line turns that calls its op so often a step.

    A turn may call it twice: a line turns no more often than it runs, unless its turns are a comprehension's. One run
    with many calls is a library's loop (clipping, copying a state), which the user did not write.
    """
    return calls if cost.inner else min(calls, cost.visits)

"""Loops whose turns work on what a mask picks: how much more work ops over all elements do."""

from __future__ import annotations

import math

import numpy as np

from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.loops.line_blocks import in_most_turns
from advisor.analyses.work.op_work import shapes
from advisor.trace.events import Events, Ints, Mask, Trace

# What no op does for groups of unequal size: products with weights or of all pairs, and orders.
_APART = (
    *("aten::linear", "aten::matmul", "aten::mm", "aten::addmm", "aten::bmm", "aten::conv1d", "aten::conv2d"),
    *("aten::_cdist_forward", "aten::sort", "aten::topk", "aten::median"),
)


def spread(trace: Trace, steps: Steps, costs: LineCosts, lines: set[int], turns: float) -> float:
    """How many times as much work the ops of these lines are for all elements as for those that masks pick.

    1 where no mask picks, and where masks of equality (`labels == c`) give each element to one turn: what is reduced
    there, as a mean of each class, one op reduces for all turns. Infinite where groups stay apart, as what goes through
    the weights of an expert does, and where shapes are not recorded. Ops count by their time.
    """
    events = trace.events
    mine = np.isin(costs.op_line, list(lines))

    def often(name: str) -> bool:
        return in_most_turns(np.count_nonzero(mine & events.exactly(name)) / steps.count, turns)

    if not often("aten::nonzero"):
        return 1.0
    apart = any(map(often, _APART))
    if often("aten::eq") or apart:
        return math.inf if apart else 1.0
    rows = np.flatnonzero(mine & (events.dims >= 0))
    masked = events.exactly("aten::nonzero")[rows]
    return _times(events, rows, masked) if masked.any() else math.inf


def _times(events: Events, rows: Ints, masked: Mask) -> float:
    """The mean over ops behind a mask of its size by what the op has of it. masked: which of the rows read a mask."""
    sizes = {int(dims): _sizes(events, int(dims)) for dims in np.unique(events.dims[rows])}
    first, whole = (np.array([sizes[dims][at] for dims in events.dims[rows].tolist()], float) for at in (0, 1))
    last = np.maximum.accumulate(np.where(masked, np.arange(len(rows)), -1))
    behind = (last >= 0) & ~masked
    mask = whole[last[behind]]
    part, us = first[behind], events.dur_ns[rows[behind]].astype(float)
    times = np.where((part >= 1) & (part <= mask), mask / np.maximum(part, 1), 1.0)
    return float(np.average(times, weights=us)) if us.sum() else 1.0


def _sizes(events: Events, dims: int) -> tuple[int, int]:
    """Rows and elements of the first input."""
    shape = next(iter(shapes(events.dims_table[dims])), [])
    return (shape[0], math.prod(shape)) if shape else (0, 0)

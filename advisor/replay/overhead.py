"""The profiler's own cost: what every recorded row added to the host's work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec.structs import replace

from advisor.constants import constant
from advisor.replay.graph import Graph
from advisor.replay.play_order import PlayOrder
from advisor.replay.simulate import Weights, step_ns
from advisor.trace.events import Category, Events, Floats

# What recording a row adds where no un-profiled times tell.
_USUAL_NS = 1e3 * constant("profiler.usual_row_us").value
# No row costs more; beyond it, something else differs.
_MOST_NS = 1e3 * constant("profiler.most_row_us").value
# Least share of a stretch that is work of its own, however many rows it holds.
_LEAST_LEFT = constant("profiler.least_left").value
# An un-profiled step this near to the profiled one asks for no correction.
_ALIKE = 0.01
# A step whose host cannot make it shorter than by this share is paced by its device.
_PACED = constant("profiler.paced_share").value
_HALVINGS = 10


class Overhead:
    """How many recorded rows lie in the host work that leads to each point."""

    def __init__(self, graph: Graph, events: Events, opens: int) -> None:
        self._rows = _rows_in_leads(graph, events, opens)

    def without(self, weights: Weights, row_ns: float) -> Weights:
        """The weights with `row_ns` taken off for every recorded row."""
        left = np.maximum(weights.lead - row_ns * self._rows, _LEAST_LEFT * weights.lead)
        return replace(weights, lead=left)

    def calibrated(
        self, plan: PlayOrder, weights: Weights, before_ns: float, unprofiled_ns: float | None
    ) -> tuple[Weights, float]:
        """The weights without the profiler, and the step with them: rows cost what makes it the un-profiled one.

        before_ns: the step with `weights`. Without un-profiled times the usual cost of a row is taken off.
        """
        if unprofiled_ns is None:
            calm = self.without(weights, _USUAL_NS)
            return calm, step_ns(plan, calm)
        if before_ns <= unprofiled_ns * (1 + _ALIKE):
            return weights, before_ns
        return _least(plan, lambda row_ns: self.without(weights, row_ns), _MOST_NS, unprofiled_ns)


def in_proportion(plan: PlayOrder, weights: Weights, before_ns: float, unprofiled_ns: float) -> tuple[Weights, float]:
    """The weights with all work of the host shortened alike, so that the step is the un-profiled one; and that step.

    The other way in which the profiler may have stretched the host. What a device does takes as long in both.
    """
    if before_ns <= unprofiled_ns * (1 + _ALIKE):
        return weights, before_ns
    shorter = partial(_shorter, weights)
    return _least(plan, shorter, 1 - _LEAST_LEFT, unprofiled_ns)


def _shorter(weights: Weights, share: float) -> Weights:
    return replace(weights, lead=(1 - share) * weights.lead)


def _least(
    plan: PlayOrder, shortened: Callable[[float], Weights], most: float, unprofiled_ns: float
) -> tuple[Weights, float]:
    """The weights shortened by no more than makes the step the un-profiled one, or by the most; and the step then.

    Where that is as short as the device lets it be, the host has time to spare, nobody knows how much: the weights are
    halfway between those with which it has none and the shortest ones.
    """
    shortest_ns = step_ns(plan, shortened(most))
    paced = plan.graph.loader > 0 and shortest_ns > unprofiled_ns * (1 - _PACED)
    unprofiled_ns = max(unprofiled_ns, shortest_ns * (1 + _ALIKE)) if paced else unprofiled_ns
    low, high, found_ns = 0.0, most, shortest_ns
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        middle_ns = step_ns(plan, shortened(middle))
        if middle_ns > unprofiled_ns:
            low = middle
        else:
            high, found_ns = middle, middle_ns
    if not paced:
        return shortened(high), found_ns
    calm = shortened((high + most) / 2)
    return calm, step_ns(plan, calm)


def _rows_in_leads(graph: Graph, events: Events, opens: int) -> Floats:
    """Recorded host rows that begin in each point's lead, on its thread."""
    points = graph.points
    recorded = events.of(Category.CPU_OP, Category.ANNOTATION, Category.PYTHON, Category.RUNTIME)
    count = np.zeros(len(points))
    for queue, thread in enumerate(graph.threads):
        starts = events.start_ns.compress(recorded & (events.thread == thread)) - opens
        mine = points.thread == queue
        low = np.searchsorted(starts, points.lead_start[mine], side="left")
        high = np.searchsorted(starts, points.lead_end[mine], side="left")
        count[mine] = np.maximum(high - low, 0)
    return count

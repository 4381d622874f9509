"""Which lines of the user's code the device works for."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import communication_rows
from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.costs.line_costs import Place, node_lines
from advisor.analyses.costs.line_shares import LEAST_SHARE, MOST
from advisor.analyses.lines.lines import Lines
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.step.phases import backward_rows
from advisor.computed import Missing
from advisor.model import LineShare
from advisor.trace.events import Ints

# Where lines are known for less of the device's work, they may not be those that matter.
_KNOWN = 0.5


class DeviceLineShares(Struct, frozen=True, eq=False):
    """Lines whose device work takes a hundredth of the un-profiled step or more, most expensive first.

    Work of a backward pass counts for the line of the forward op; that of nodes of no known op for the line that called
    it; communication for none. Work on several streams at once counts for each. Missing without a device,
    without lines, and where these are known for less than half of the work.
    """

    lines: tuple[LineShare, ...]

    @classmethod
    def compute(cls, lines: Lines, ops: StepOps, breakdown: Breakdown) -> DeviceLineShares:
        """The lines of this rank."""
        if not breakdown.on_device:
            raise Missing("the trace has no device work")
        if not lines.available:
            raise Missing(lines.why)
        index: dict[Place, int] = {}
        of_source = [index.setdefault((one.file, one.line), len(index)) for one in lines.sources]
        first = {place: source for source, place in reversed(list(zip(lines.sources, of_source, strict=True)))}
        rows, place, backward = _placed(ops, np.array([*of_source, -1], np.int64)[lines.op_source])
        dur_ns = ops.events.dur_ns
        if dur_ns[rows].sum() < _KNOWN * dur_ns[_work(ops)].sum():
            raise Missing("which lines start most of the device work is not known")
        took_us = ops.events.dur_ns[rows] / 1e3 * ops.longer / ops.steps.count
        share = np.bincount(place, took_us, len(index)) / ops.steps.step_us
        of_backward = np.bincount(place[backward], took_us[backward], len(index)) / ops.steps.step_us
        count = np.bincount(place, minlength=len(index)) / ops.steps.count
        runs = _runs(lines, ops)
        found = tuple(
            LineShare(first[at], float(share[at]), float(share[at]), float(of_backward[at] / share[at]), *each)
            for at in np.argsort(-share, kind="stable").tolist()[:MOST]
            if share[at] >= LEAST_SHARE
            for each in [(runs.get((first[at].file, first[at].line), 0.0), float(count[at]))]
        )
        return cls(found)


def _work(ops: StepOps) -> Ints:
    """What the device does in the steps, without communication."""
    return np.flatnonzero(ops.trace.device_work & ops.links.inside & ~communication_rows(ops.events))


def _placed(ops: StepOps, op_line: Ints) -> tuple[Ints, Ints, Ints]:
    """Device work of the steps whose line is known, the number of its line, and which of it is of a backward pass."""
    launch = ops.links.launch
    rows = _work(ops)
    rows = rows[launch[rows] >= 0]
    node = ops.nesting.ancestor(backward_rows(ops.events))[launch[rows]]
    of_node = np.where(node >= 0, node_lines(ops.trace, ops.links, op_line)[np.maximum(node, 0)], -1)
    place = np.where(of_node >= 0, of_node, op_line[launch[rows]])
    known = place >= 0
    return rows[known], place[known], np.flatnonzero(of_node[known] >= 0)


def _runs(lines: Lines, ops: StepOps) -> dict[Place, float]:
    """How often each line ran per step, where that is recorded."""
    found: dict[Place, float] = {}
    for time in lines.hot(ops.steps.window, len(lines.sources)):
        found[time.source.place] = time.calls
    return found

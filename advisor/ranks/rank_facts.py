"""What one rank leaves behind for the analysis of the whole job, once its trace is dropped."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.scale import Scale
from advisor.analyses.base.steps import Steps
from advisor.analyses.costs.line_costs import LineCosts
from advisor.analyses.step.breakdown import Breakdown
from advisor.analyses.work.op_work import flops, shapes
from advisor.capture.record import RankRecord
from advisor.model import Source
from advisor.ranks.collectives import Talks
from advisor.ranks.rank_mesh import MeshPlace, mesh_places
from advisor.trace.events import Category, Floats, Ints, Trace
from advisor.trace.intervals import Intervals, intersect, overlap_of_each
from advisor.trace.numbers import distinct_pairs

# Lines kept of each rank: what tells ranks apart is among the costliest, and a job may have thousands of ranks.
_LINES = 40
_TALKING = ("exposed_communication", "communication")
_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::convolution_backward")


class LinePart(Struct, frozen=True):
    """Time of one line of the user's in one part of the breakdown, profiled µs per step."""

    source: Source
    part: str
    us: float


class RankFacts(Struct, frozen=True, eq=False):
    """One rank, reduced: times are by its own clock, those per step are of its profiled steps.

    labels, starts_ns   names and starts of the steps
    parts_us    breakdown id -> µs in each step
    exposed     when it only communicates (exposed_communication, or communication without a device)
    talks       its collectives
    flops       FLOPs of matrix products and convolutions in each step, from their shapes; None without shapes
    lines       where its time goes, by line and part; empty if lines are not known
    mesh        its index in each dimension of parallelism; empty if process groups do not show it
    """

    labels: tuple[str, ...]
    starts_ns: Ints
    parts_us: dict[str, Floats]
    exposed: Intervals
    talks: Talks
    flops: Floats | None
    lines: tuple[LinePart, ...]
    scale: Scale
    step_us: float
    on_device: bool
    world_size: int | None
    record: RankRecord | None
    mesh: tuple[MeshPlace, ...] = ()

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        breakdown: Breakdown,
        scale: Scale,
        talks: Talks,
        costs: LineCosts | None,
        record: RankRecord | None,
    ) -> RankFacts:
        """The facts of one rank."""
        talking = next(part for part in _TALKING if part in breakdown.intervals)
        return cls(
            labels=steps.labels,
            starts_ns=steps.spans[:, 0],
            parts_us={part: _by_step(steps, spans) for part, spans in breakdown.intervals.items()},
            exposed=breakdown.intervals[talking],
            talks=talks,
            flops=_flops(trace, steps),
            lines=_lines(costs),
            scale=scale,
            step_us=steps.step_us,
            on_device=breakdown.on_device,
            world_size=record.world_size if record else trace.meta.world_size,
            record=record,
            mesh=mesh_places(trace.meta.groups, record.rank if record else trace.meta.rank),
        )


def _by_step(steps: Steps, spans: Intervals) -> Floats:
    """µs of a set in each step; the time between two steps of a window counts to the earlier one."""
    ends = np.append(steps.spans[1:, 0], steps.spans[-1, 1])
    inside = intersect(spans, steps.window)
    return overlap_of_each(steps.spans[:, 0], ends, inside) / 1e3


def _flops(trace: Trace, steps: Steps) -> Floats | None:
    events = trace.events
    rows = np.flatnonzero(events.of(Category.CPU_OP) & events.exactly(*_PRODUCTS) & (events.dims >= 0))
    if not len(rows):
        return None
    step = steps.step_of(events.start_ns[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    if not len(rows):
        return None
    pairs, which = distinct_pairs(events.name[rows], events.dims[rows])
    work = np.array([flops(events.names[name], shapes(events.dims_table[dims])) for name, dims in pairs.tolist()])
    return np.bincount(step, weights=work[which], minlength=steps.count).astype(float)


def _lines(costs: LineCosts | None) -> tuple[LinePart, ...]:
    found = [
        LinePart(line.source, part, us) for line in (costs.lines if costs else ()) for part, us in line.parts.items()
    ]
    return tuple(sorted((one for one in found if one.us > 0), key=lambda one: -one.us)[:_LINES])

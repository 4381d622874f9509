"""What a stretch of the loop's thread takes without the profiler, as a range."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.analyses.host_gaps import HostGaps
from advisor.analyses.links import Links
from advisor.analyses.phases import Phases
from advisor.analyses.scale import Scale
from advisor.analyses.steps import Steps
from advisor.trace.events import Category, Trace
from advisor.trace.intervals import EMPTY, Intervals, intersect, subtract, total, union

# Between two ops of a layer lie 3 to 20 µs of Python that no script can avoid; work that somebody wrote takes longer.
_LONG_GAP_NS = 30_000
# Of what the profiler added, the part that goes by recorded rows: loops over single elements were recorded 2.9 times as
# long as they took, ordinary layers beside them 1.5 times. That is three quarters by rows, the rest by time.
_BY_ROWS = 0.75
# A stretch keeps at least this part of its recorded time: in loops over numbers a row took 0.6 µs, its record included.
_LEAST_LEFT = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Undilated:
    """How recorded time maps to un-profiled time where some work is slowed more by the profiler than other work.

    python        stretches of Python, 30 µs or more in no op, fetch, optimizer or communication; empty with a device
    recorded_us   |W| per step
    plain_us      the same without the profiler: |W| per step by the ratio of the medians; recorded_us where not known
    python_us     µs of `python` per step
    rows          recorded ops per step
    """

    python: Intervals
    recorded_us: float
    plain_us: float
    python_us: float
    rows: float

    def share(self, us: float, python_us: float = 0.0, rows: float = 0.0) -> tuple[float, float]:
        """(low, high) share of the un-profiled step of work that was recorded as `us` per step.

        python_us: the part of it in long stretches of Python; rows: ops recorded in it, per step. The range spans three
        hypotheses: the profiler slows everything alike; it slows only ops; it slows most where most rows are.
        """
        added = self.recorded_us - self.plain_us
        shares = [us / self.recorded_us]
        if added > 0:
            ops_us = self.recorded_us - self.python_us
            left = max(1 - added / ops_us, _LEAST_LEFT) if ops_us > 0 else 1.0
            shares.append((python_us + (us - python_us) * left) / self.plain_us)
            if self.rows:
                cost_us = _BY_ROWS * added / self.rows
                shares.append(max(us - rows * cost_us, _LEAST_LEFT * us) / (self.recorded_us - self.rows * cost_us))
        return min(max(min(shares), 0.0), 1.0), min(max(shares), 1.0)

    @classmethod
    def compute(
        cls, trace: Trace, steps: Steps, scale: Scale, links: Links, gaps: HostGaps, phases: Phases
    ) -> Undilated:
        """The mapping for this trace."""
        # While the loop's thread waits for autograd's own, that one's ops are no Python; beside a device nobody asks.
        python = EMPTY
        if not trace.device_work.any():
            ops = trace.events.of(Category.CPU_OP)
            elsewhere = union(trace.events.start_ns[ops], trace.events.end_ns[ops])
            python = subtract(subtract(gaps.spans, phases.communication), elsewhere)
        python = python[python[:, 1] - python[:, 0] >= _LONG_GAP_NS]
        typical, recorded = scale.unprofiled.median, scale.profiled.median
        slower = max(recorded / typical, 1.0) if typical and recorded else 1.0
        rows = trace.events.of(Category.CPU_OP) & (links.step >= 0)
        python = intersect(python, steps.window)
        return cls(
            python=python,
            recorded_us=steps.step_us,
            plain_us=steps.step_us / slower,
            python_us=steps.per_step_us(total(python)),
            rows=float(np.count_nonzero(rows)) / steps.count,
        )

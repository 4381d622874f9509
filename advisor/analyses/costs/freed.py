"""What it takes to give the memory of large results back to the system, which lies behind the ops and in none of them.

The C library maps an allocation of 32 MB and more by itself, and unmaps it when it is freed (mallopt(3),
M_MMAP_THRESHOLD). A result is freed behind the last op that reads it, so behind an op that goes with it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.costs.evicted import Evicted
from advisor.analyses.work.op_costs import result_bytes
from advisor.arrays import Floats
from advisor.constants import constant
from advisor.trace.events import Category
from advisor.trace.numbers import first_places

# DEFAULT_MMAP_THRESHOLD_MAX of the C library on 64 bits.
_MAPPED_BYTES = 32 << 20
_US_PER_MB = constant("memory.freed_us_per_mb").range


class Freed(Struct, frozen=True, eq=False):
    """Memory that is unmapped in each step, and the time in which that may happen.

    bytes      (n,) of each event's result where it has a mapping of its own; 0 for others
    behind_us  (n,) from the end of each outermost op of the loop's thread to the next one; 0 for others
    steps      profiled steps
    """

    bytes: Floats
    behind_us: Floats
    steps: int

    def us(self, gone: Floats) -> tuple[float, float]:
        """(least, most) recorded µs per step that go with these shares of the ops, never more than lies behind them."""
        freed_mb = float((self.bytes * gone).sum()) / 1e6
        behind_us = float(self.behind_us[gone > 0].sum())
        least, most = (min(freed_mb * rate, behind_us) / max(self.steps, 1) for rate in _US_PER_MB)
        return least, most

    @classmethod
    def compute(cls, ops: StepOps, evicted: Evicted) -> Freed:
        """That of the profiled steps of a host."""
        events, outer = ops.events, ops.outermost
        made, behind = np.zeros(len(events)), np.zeros(len(events))
        rows = np.flatnonzero(events.of(Category.CPU_OP) & ops.links.inside & (events.dims >= 0))
        member = evicted.kind[rows]
        first = first_places(member, int(member.max(initial=-1)) + 1)
        made[rows] = np.array([result_bytes(events, int(row)) for row in rows[first]])[member]
        made[made < _MAPPED_BYTES] = 0
        known, around = made > 0, ops.nesting.parent
        made[ops.nesting.within(known)[around] & (around >= 0)] = 0
        behind[outer[:-1]] = np.maximum(events.start_ns[outer[1:]] - events.end_ns[outer[:-1]], 0) / 1e3
        return cls(made, behind, ops.steps.count)

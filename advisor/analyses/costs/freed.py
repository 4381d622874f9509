"""What it takes to give the memory of large results back to the system, which lies behind the ops and in none of them.

The C library maps an allocation of 32 MB and more by itself, and unmaps it when it is freed (mallopt(3),
M_MMAP_THRESHOLD). A result is freed behind the last op that reads it, so behind an op that goes with it. How long
it takes depends on the system's pages, and another allocator may keep the memory: it is the most that can be.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.costs.evicted import Evicted, bytes_by_kind
from advisor.analyses.work.op_costs import result_bytes
from advisor.arrays import Floats
from advisor.constants import constant
from advisor.trace.events import Events

# DEFAULT_MMAP_THRESHOLD_MAX of the C library on 64 bits.
_MAPPED_BYTES = 32 << 20
_US_PER_MB = constant("memory.freed_us_per_mb").high


class Freed(Struct, frozen=True, eq=False):
    """Memory that is unmapped in each step, and the time in which that may happen.

    bytes      (n,) of each event's result where it has a mapping of its own; 0 for others
    behind_us  (n,) from the end of each outermost op of the loop's thread to the next one; 0 for others
    steps      profiled steps
    """

    bytes: Floats
    behind_us: Floats
    steps: int

    def us(self, gone: Floats) -> float:
        """The most that goes with these shares of the ops, recorded µs per step: no more than lies behind them."""
        freed_us = float((self.bytes * gone).sum()) / 1e6 * _US_PER_MB
        return min(freed_us, float(self.behind_us[gone > 0].sum())) / max(self.steps, 1)

    @classmethod
    def compute(cls, ops: StepOps, evicted: Evicted) -> Freed:
        """That of the profiled steps of a host."""
        events, outer = ops.events, ops.outermost
        behind = np.zeros(len(events))
        behind[outer[:-1]] = np.maximum(events.start_ns[outer[1:]] - events.end_ns[outer[:-1]], 0) / 1e3
        return cls(bytes_by_kind(ops, evicted.kind, _mapped_bytes), behind, ops.steps.count)


def _mapped_bytes(events: Events, row: int) -> float:
    """Bytes of an op's result where it has a mapping of its own; 0 for others."""
    made = result_bytes(events, row)
    return made if made >= _MAPPED_BYTES else 0.0

"""Many small kernels that one op on a list of tensors replaces: what the device no longer does and waits for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from advisor.api import KernelWork, Price, Saving, dataclass, edits

from ._roofline import WELL_MADE, saved_us, scaled

Ints = npt.NDArray[np.int64]
# Between two kernels that are queued already the device needs a µs or two; with fewer kernels that goes as well.
CLAIMS = ("compute", "idle_launch")
_BETWEEN = ("idle_launch", "idle_unknown")


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Ops that call kernels tensor by tensor, as ops on lists.

    edits      the ops become few, and their kernels as fast as the bytes that they move allow
    faster_us  what the kernels then take less;  waited_us: what the device waits right before them; both µs per
               profiled step
    """

    edits: tuple[edits.Edit, ...]
    faster_us: float
    waited_us: float

    def saving(self, price: Price, how: str) -> Saving:
        """What these edits give back; at least nothing, as other work may hide all of it."""
        bound_us = min(self.faster_us + self.waited_us, price.measured_us(CLAIMS))
        return price.saving([], self.edits, CLAIMS, how, model_us=(0.0, self.waited_us), bound_us=bound_us)


def as_lists(price: Price, work: KernelWork | None, ops: Ints, into: int, passes: float = 1.0) -> Listed:
    """The ops on lists, in so many calls. passes: the share of the ways through memory that these make, if fewer.

    What a kernel moves is known where shapes are recorded; elsewhere kernels keep their time.
    """
    events, kernels = price.ops.events, price.ops.launched(ops)
    groups = work.groups if work else ()
    kept = [(np.intersect1d(group.kernels, kernels), min(group.reached / WELL_MADE, 1.0) * passes) for group in groups]
    known = np.concatenate([mine for mine, _ in kept]) if kept else kernels[:0]
    kept.append((np.setdiff1d(kernels, known), passes))
    changes = [edits.fuse(ops, into=max(into, 1)), *scaled([one for one in kept if len(one[0])])]
    starts, waited_us = events.start_ns[kernels], 0.0
    for part in _BETWEEN:
        idle = price.breakdown.intervals[part]
        waited_us += price.breakdown.us_in(part, idle[np.isin(idle[:, 1], starts)])
    return Listed(tuple(changes), saved_us(price, kept), waited_us)

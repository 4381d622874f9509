"""Many small kernels that one op on a list of tensors replaces: what the device no longer does and waits for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from advisor.api import Intervals, KernelWork, Price, Saving, edits

from ._roofline import WELL_MADE, saved_us, scaled

Ints = npt.NDArray[np.int64]
# Between two kernels that are queued already the device needs a µs or two; with fewer kernels that goes as well.
_WAITS = ("idle_launch",)
_BETWEEN = ("idle_launch", "idle_unknown")


class Listed(Struct, frozen=True, eq=False):
    """Ops that call kernels tensor by tensor, as ops on lists.

    edits      the ops become few, and their kernels as fast as the bytes that they move allow
    waited_us  what the device waits right before these kernels
    later_us   what it may wait for launches, there and later, for the time that the host spends in the ops
    most_us    no more can go: that, what the kernels take less, and the time between kernels that are queued
               all in µs per profiled step
    """

    edits: tuple[edits.Edit, ...]
    waited_us: float
    later_us: float
    most_us: float

    @property
    def claims(self) -> tuple[str, ...]:
        """Where most of it lies: in waits for launches, or in the kernels as well."""
        return _WAITS if self.later_us > self.most_us / 2 else ("compute", *_WAITS)

    def saving(self, price: Price, how: str) -> Saving:
        """What these edits give back; at least nothing, as other work may hide all of it."""
        bound_us = min(self.most_us, price.measured_us(self.claims))
        return price.saving([], self.edits, self.claims, how, model_us=(0.0, self.waited_us), bound_us=bound_us)


def as_lists(price: Price, work: KernelWork | None, ops: Ints, into: int, passes: float = 1.0) -> Listed:
    """The ops on lists, in so many calls. passes: the share of the ways through memory that these make, if fewer.

    What a kernel moves is known where shapes are recorded; elsewhere kernels keep their time.
    """
    kernels = price.ops.launched(ops)
    groups = work.groups if work else ()
    theirs = np.zeros(len(price.ops.events), bool)
    theirs[kernels] = True
    kept = [
        (np.unique(group.kernels[theirs[group.kernels]]), min(group.reached / WELL_MADE, 1.0) * passes)
        for group in groups
    ]
    known = np.concatenate([mine for mine, _ in kept]) if kept else kernels[:0]
    kept.append((np.setdiff1d(kernels, known), passes))
    changes = [edits.fuse(ops, into=max(into, 1)), *scaled([one for one in kept if len(one[0])])]
    launch_us, between_us = (price.breakdown.us_in(part, _before(price, kernels, part)) for part in _BETWEEN)
    later_us = max(min(price.ops.us(ops), price.breakdown.us("idle_launch")), launch_us)
    of_device_us = saved_us(price, kept) + between_us
    return Listed(tuple(changes), launch_us + between_us, later_us, of_device_us + later_us)


def _before(price: Price, kernels: Ints, part: str) -> Intervals:
    """Idle time of that part after which one of these kernels is the next work."""
    events, idle = price.ops.events, price.breakdown.intervals[part]
    works = np.flatnonzero(price.ops.trace.device_work)
    after = np.searchsorted(events.start_ns[works], idle[:, 1])
    found = after < len(works)
    chosen = np.zeros(len(events), bool)
    chosen[kernels] = True
    found &= chosen[works[np.minimum(after, len(works) - 1)]]
    return idle[found]

"""Many small kernels that one op on a list of tensors replaces: what the device no longer does and waits for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.api import Category, Intervals, Ints, KernelWork, Price, Saving, calm, constant, edits, intersect, union

from ._roofline import WELL_MADE, saved_us, scaled

# Between two kernels that are queued already the device needs a µs or two; with fewer kernels that goes as well.
_BETWEEN = ("idle_launch", "idle_unknown")
# No kernel takes longer than this just to start and end.
_SHORT_US = constant("device.short_kernel_us").value


class Listed(Struct, frozen=True, eq=False):
    """Ops that call kernels tensor by tensor, as ops on lists.

    edits      the ops become few, and their kernels as fast as the bytes that they move allow
    waited_us  what the device waits right before these kernels
    later_us   what it may wait for launches, there and later, for the time that the host spends in the ops
    most_us    no more can go: that, what the kernels take less, and the time between kernels that are queued
               all in µs per profiled step
    claims     the parts in which that lies, the largest first: waits for launches, the kernels, copies
    """

    edits: tuple[edits.Edit, ...]
    waited_us: float
    later_us: float
    most_us: float
    claims: tuple[str, ...]

    @property
    def mostly_waits(self) -> bool:
        """Whether most of it lies in waits for launches, not in the kernels."""
        return self.claims[0] == "idle_launch"

    def saving(self, price: Price, how: str) -> Saving:
        """What these edits give back; at least nothing, as other work may hide all of it."""
        bound_us = min(self.most_us, price.measured_us(self.claims))
        return price.saving([], self.edits, self.claims, how, model_us=(0.0, self.waited_us), bound_us=bound_us)


def as_lists(
    price: Price,
    work: KernelWork | None,
    ops: Ints,
    into: int,
    passes: float = 1.0,
    within: str = "",
    stay: Ints | None = None,
) -> Listed:
    """The ops on lists, in so many calls. passes: the share of the ways through memory that these make, if fewer.

    within: what the rows are called that hold the whole loop, and nothing else besides other ops.
    stay: kernels that one call launches as well; they, and the time between them, stay.

    What a kernel moves is known where shapes are recorded. Elsewhere it is what each takes longer than the shortest of
    them, which moves nothing to speak of: one kernel for all of them starts once.
    """
    every = price.ops.launched(ops)
    kernels = every if stay is None else np.setdiff1d(every, stay)
    groups = work.groups if work else ()
    theirs = np.zeros(len(price.ops.events), bool)
    theirs[kernels] = True
    kept = [
        (np.unique(group.kernels[theirs[group.kernels]]), min(group.reached / WELL_MADE, 1.0) * passes)
        for group in groups
    ]
    known = np.concatenate([mine for mine, _ in kept]) if kept else kernels[:0]
    kept += [(mine, share * passes) for mine, share in _without_start(price, np.setdiff1d(kernels, known))]
    fused = edits.fuse(ops, into=max(into, 1))
    changes = [
        fused,
        edits.scale_time(_of_the_loop(price, ops, within), fused.factor),
        *scaled([one for one in kept if len(one[0])]),
    ]
    launch_us, between_us = (
        price.breakdown.us_in(part, idle_before(price, before, part))
        for part, before in zip(_BETWEEN, (every, kernels), strict=True)
    )
    later_us = max(min(price.ops.us(ops), price.breakdown.us("idle_launch")), launch_us)
    of_device_us = saved_us(price, kept) + between_us
    copies = ("exposed_copy",) if price.ops.events.of(Category.MEMCPY)[kernels].any() else ()
    parts = ("idle_launch", "compute") if later_us > of_device_us else ("compute", "idle_launch")
    return Listed(tuple(changes), launch_us + between_us, later_us, of_device_us + later_us, (*parts, *copies))


def _without_start(price: Price, kernels: Ints) -> Iterator[tuple[Ints, float]]:
    """Kernels and copies, by kind, and the share of their time that they move bytes for."""
    dur_ns, copies = price.ops.events.dur_ns[kernels], price.ops.events.of(Category.MEMCPY)[kernels]
    for kind in (copies, ~copies):
        if kind.any():
            start_ns = min(float(dur_ns[kind].min()), 1e3 * _SHORT_US)
            yield kernels[kind], 1 - start_ns * int(kind.sum()) / max(float(dur_ns[kind].sum()), 1.0)


def _of_the_loop(price: Price, ops: Ints, within: str) -> Intervals:
    """Host time of the loop: its ops, and Python between two that follow each other with no op between.

    Where no row holds the loop, other Python may lie between as well: then no more than is usual.
    """
    events, outermost = price.ops.events, price.ops.outermost
    mine = np.isin(outermost, ops)
    at = np.flatnonzero(mine[:-1] & mine[1:])
    gaps = np.column_stack((events.end_ns[outermost[at]], events.start_ns[outermost[at + 1]]))
    gaps = gaps[gaps[:, 1] > gaps[:, 0]]
    rows = np.flatnonzero(events.named(within)) if within else ops[:0]
    gaps = intersect(gaps, events.covered(rows)) if within else calm(gaps)
    spans = np.concatenate((gaps, np.column_stack((events.start_ns[ops], events.end_ns[ops]))))
    return union(spans[:, 0], spans[:, 1])


def idle_before(price: Price, kernels: Ints, part: str) -> Intervals:
    """Idle time of that part after which one of these kernels is the next work."""
    events, idle = price.ops.events, price.breakdown.intervals[part]
    works = np.flatnonzero(price.ops.trace.device_work)
    after = np.searchsorted(events.start_ns[works], idle[:, 1])
    found = after < len(works)
    chosen = np.zeros(len(events), bool)
    chosen[kernels] = True
    found &= chosen[works[np.minimum(after, len(works) - 1)]]
    return idle[found]

"""CPU ops and kernels: how many, and which cost most."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.model import OpRow
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import intersect, total

# Rows of the tables on the page: beyond forty, a row is below a percent in every trace looked at.
_TOP = 40
_KINDS = {Category.KERNEL: "kernel", Category.MEMCPY: "memcpy", Category.MEMSET: "memset", Category.CPU_OP: "op"}


class Ops(Struct, frozen=True, eq=False):
    """Ops of W, per step.

    per_step      CPU ops on all threads; None, and `why`, if ops were not recorded
    top           CPU ops by self time (time in the op and in none of its children), most expensive first; share of |W|
    kernels       device work by name; share of device-busy time; empty without a device
    """

    per_step: float | None
    top: tuple[OpRow, ...]
    kernels: tuple[OpRow, ...]
    why: str = ""

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, nesting: Nesting, links: Links) -> Ops:
        """Ops of this rank."""
        events = trace.events
        inside = links.inside
        ops = events.of(Category.CPU_OP) & inside
        work = trace.device_work & inside
        busy_ns = total(intersect(trace.busy, steps.window))
        return cls(
            per_step=None if trace.without_ops else float(ops.sum()) / steps.count,
            top=by_name(events, ops, steps, steps.window_ns, time_ns=nesting.self_ns),
            kernels=by_name(events, work, steps, busy_ns),
            why=trace.without_ops,
        )


def by_name(
    events: Events, rows: Mask, steps: Steps, whole_ns: int, *, n: int = _TOP, time_ns: Ints | None = None
) -> tuple[OpRow, ...]:
    """The given rows summed by name, per step, most expensive first; share of `whole_ns`."""
    times = events.dur_ns if time_ns is None else time_ns
    chosen = np.flatnonzero(rows)
    names = events.name.take(chosen).astype(np.intp)
    total_ns = np.bincount(names, weights=times.take(chosen), minlength=len(events.names))
    calls = np.bincount(names, minlength=len(events.names))
    kind_of = np.zeros(len(events.names), np.int8)
    kind_of[names] = events.category.take(chosen)
    order = np.lexsort((np.arange(len(calls)), -total_ns))[:n]
    return tuple(
        OpRow(
            name=events.names[i],
            kind=_KINDS.get(Category(kind_of[i]), "other"),
            us=float(steps.per_step_us(total_ns[i])),
            calls=float(calls[i]) / steps.count,
            share=float(total_ns[i]) / whole_ns if whole_ns else 0.0,
        )
        for i in order
        if calls[i]
    )

"""First calls of ops that load what they launch: no row of the driver tells that."""

from __future__ import annotations

import numpy as np

from advisor.analyses.base.classify import launch_calls
from advisor.analyses.base.launched import Launched
from advisor.trace.events import Category, Events, Ints, Trace
from advisor.trace.numbers import in_order

# Before its launch an op of PyTorch takes some µs; in it nothing but loading and making of handles takes a millisecond,
# and far longer than at any later call.
_LONG_NS, _LONGER = 1_000_000, 20


def first_calls(trace: Trace, launched: Launched) -> Ints:
    """Ops of PyTorch that launch a kernel first of all, a millisecond or more after they began and without any call."""
    events, launch = trace.events, launched.launch
    calls = launch_calls(events)
    works = np.flatnonzero(events.of(Category.KERNEL) & (launch >= 0))
    works = works[calls[launch[works]]]
    if not len(works):
        return works
    works = works[np.argsort(events.start_ns[launch[works]], kind="stable")]
    op, quiet_ns = _before(events, launch[works])
    usual_ns = float(np.median(quiet_ns))
    found = []
    seen: dict[int, int] = {}
    for at in np.flatnonzero(quiet_ns >= max(_LONGER * usual_ns, _LONG_NS)).tolist():
        kernel = int(events.name[works[at]])
        mine = np.flatnonzero(events.name[works] == kernel) if kernel not in seen else np.empty(0, np.int64)
        seen[kernel] = at
        # What is as long at a later call is the op's own work.
        if len(mine) and mine[0] == at and op[at] >= 0 and (quiet_ns[mine[1:]] * _LONGER < quiet_ns[at]).all():
            found.append(int(op[at]))
    return np.unique(np.array(found, np.int64))


def _before(events: Events, calls: Ints) -> tuple[Ints, Ints]:
    """The op of PyTorch around each call, and for how long before the call it did nothing that has a row, ns.

    -1 and 0 where something in it came before the call, or no such op is around it.
    """
    op, quiet_ns = np.full(len(calls), -1, np.int64), np.zeros(len(calls), np.int64)
    host = events.of(Category.CPU_OP, Category.RUNTIME)
    named = events.of(Category.CPU_OP) & events.named("aten::")
    for thread in np.unique(events.thread[calls]).tolist():
        mine = np.flatnonzero(events.thread[calls] == thread)
        rows = np.flatnonzero(host & (events.thread == thread))  # in order of start
        at = np.searchsorted(rows, calls[mine]) - 1
        before = rows[np.maximum(at, 0)]
        called_ns = events.start_ns[calls[mine]]
        around = (at >= 0) & named[before] & (events.end_ns[before] >= events.end_ns[calls[mine]])
        ends_ns = in_order(events.end_ns[rows])
        ended = np.searchsorted(ends_ns, called_ns[around], side="right")
        around[around] = ended == np.searchsorted(ends_ns, events.start_ns[before[around]], side="right")
        op[mine[around]] = before[around]
        quiet_ns[mine[around]] = (called_ns - events.start_ns[before])[around]
    return op, quiet_ns

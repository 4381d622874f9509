"""Stretches in which threads of the host did not run, though nothing that the trace knows held them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import blocking_calls
from advisor.analyses.base.host_communication import host_collectives
from advisor.analyses.base.links import Links
from advisor.capture.record import RankRecord
from advisor.trace.events import Category, Events, Ints, Trace
from advisor.trace.intervals import EMPTY, Intervals, merge, overlap_of_each, union

# A thread that waits for the device is woken some 10 µs after the device is done; clocks of a trace agree to some µs.
_LATE_NS = 1_000_000
# Of a period a shorter rest costs less than a twentieth, and between two rows of a healthy loop there are many.
_LONG_NS = 5_000_000
# Linux gives a control group its processors' time anew at the start of each period. The default of cpu.cfs_period_us,
# of Docker's `--cpu-period` and of Kubernetes' `cpuCFSQuotaPeriod` (docs.kernel.org/scheduler/sched-bwc.html).
PERIOD_NS = 100_000_000
# A thread that may run again does within a time slice of the scheduler; by chance two rests agree so in 2 % of cases.
_SAME_NS = 1_000_000
# Three agree by chance in 0.04 % of cases; most of the late returns must, since a quota stops whatever runs.
_SEVERAL = 3


class Standstills(Struct, frozen=True, eq=False):
    """Waits that return long after what they waited for, and other rests that end in their rhythm.

    late        of each synchronization, and of each copy to the host that is waited for, the time between the end of
                all work launched before it and its return, less the least such time among the calls of its name; a
                millisecond or more. What it waited for was done: its thread did not run. Not during a collective of a
                CPU backend, which the device waits for, and with it a call that waits for the device
    periodic    stretches of 5 ms or more in which no row of any host thread begins or ends, and no wait is unfulfilled,
                that end at multiples of Linux' period of quotas, as the late returns do; empty where those do not
    mostly      whether most calls of a name return late: then they may wait for work that the trace does not contain
    used_up     share of these periods in which the un-profiled steps had used up their quota; None if not recorded
    """

    late: Intervals
    periodic: Intervals
    mostly: bool
    used_up: float | None

    @property
    def spans(self) -> Intervals:
        """All of them."""
        return merge(self.late, self.periodic)

    @classmethod
    def compute(cls, trace: Trace, links: Links, record: RankRecord | None) -> Standstills:
        """Of a trace; without work of a device nothing is known to have been waited for."""
        if not trace.device_work.any():
            return cls(EMPTY, EMPTY, False, None)
        queue = _Queue(trace, links)
        late, mostly = _late(trace.events, links, queue)
        periodic = _periodic(trace.events, late, queue) if len(late) else EMPTY
        return cls(late, periodic, mostly, record.vitals.quota_used_up if record and record.vitals else None)


class _Queue:
    """When all work was done that had been launched by an instant."""

    def __init__(self, trace: Trace, links: Links) -> None:
        events, work = trace.events, np.flatnonzero(trace.device_work)
        launch = links.launch[work]
        launched_ns = np.where(launch >= 0, events.start_ns[np.maximum(launch, 0)], events.start_ns[work])
        order = np.argsort(launched_ns, kind="stable")
        self.launched_ns = launched_ns[order]
        self.done_ns = np.maximum.accumulate(events.end_ns[work][order])

    def done(self, by_ns: Ints) -> Ints:
        """For each instant; the instant itself where some work was not done by then, and so may be waited for."""
        before = np.searchsorted(self.launched_ns, by_ns) - 1
        done_ns = self.done_ns[np.maximum(before, 0)]
        return np.where(before >= 0, np.minimum(done_ns, by_ns), by_ns)


def _late(events: Events, links: Links, queue: _Queue) -> tuple[Intervals, bool]:
    rows, copied_ns = _waits(events, links)
    if not len(rows):
        return EMPTY, False
    since = np.maximum(events.start_ns[rows], queue.done(events.end_ns[rows]))
    lag = events.end_ns[rows] - since
    names, which = np.unique(events.name[rows], return_inverse=True)
    least = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(least, which, lag)
    beyond = lag - least[which]
    # From memory that is not pinned the host copies the last part itself, which takes no longer than all of it took.
    late = (beyond >= _LATE_NS) & (beyond > copied_ns)
    late &= overlap_of_each(since, events.end_ns[rows], events.covered(host_collectives(events))) == 0
    calls, of_them = np.bincount(which), np.bincount(which, late)
    mostly = bool((2 * of_them > calls).any())
    return union((since + least[which])[late], events.end_ns[rows][late]), mostly


def _waits(events: Events, links: Links) -> tuple[Ints, Ints]:
    """Calls that do nothing but wait, of threads that launch kernels, and what copies that some launch take, ns."""
    copies = np.flatnonzero(events.of(Category.MEMCPY) & events.named("DtoH", "DeviceToHost") & (links.launch >= 0))
    copies = copies[events.end_ns[links.launch[copies]] >= events.end_ns[copies]]
    syncs = np.flatnonzero(blocking_calls(events) & events.named("Synchronize"))
    rows = np.concatenate((syncs, links.launch[copies]))
    took = np.concatenate((np.zeros(len(syncs), np.int64), events.dur_ns[copies]))
    kernels = np.flatnonzero(events.of(Category.KERNEL) & (links.launch >= 0))
    mine = np.isin(events.thread[rows], np.unique(events.thread[links.launch[kernels]]))
    return rows[mine], took[mine]


def _periodic(events: Events, late: Intervals, queue: _Queue) -> Intervals:
    ended = late[late[:, 1] - late[:, 0] >= _LONG_NS][:, 1]
    if len(ended) < _SEVERAL:
        return EMPTY
    # The late return that most others agree with, but for whole periods.
    phases = np.sort(ended % PERIOD_NS)
    around = np.concatenate((phases - PERIOD_NS, phases, phases + PERIOD_NS))
    agree = np.searchsorted(around, phases + _SAME_NS, "right") - np.searchsorted(around, phases - _SAME_NS)
    if agree.max() < _SEVERAL or 2 * agree.max() <= len(ended):
        return EMPTY
    rests = _rests(events, queue)
    apart = (rests[:, 1] - phases[agree.argmax()]) % PERIOD_NS
    found: Intervals = rests[np.minimum(apart, PERIOD_NS - apart) <= _SAME_NS]
    return found


def _rests(events: Events, queue: _Queue) -> Intervals:
    """Stretches in which no row of any host thread begins or ends, after what a call in them waits for."""
    host = np.flatnonzero(events.of(Category.CPU_OP, Category.RUNTIME, Category.ANNOTATION, Category.PYTHON))
    instants = np.unique(np.concatenate((events.start_ns[host], events.end_ns[host])))
    start, end = instants[:-1], instants[1:]
    long = end - start >= _LONG_NS
    start, end = start[long], end[long]
    calls = events.covered(events.of(Category.RUNTIME))
    at = np.searchsorted(calls[:, 0], start, side="right") - 1
    inside = (at >= 0) & (calls[np.maximum(at, 0), 1] >= end) if len(calls) else np.zeros(len(start), bool)
    start = np.where(inside, np.maximum(start, queue.done(end)), start)
    keep = end - start >= _LONG_NS
    return np.column_stack((start[keep], end[keep]))

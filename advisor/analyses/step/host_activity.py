"""What the threads that feed the device are doing."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import blocking_calls, launch_calls
from advisor.analyses.base.links import Links
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.standstills import Standstills
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import EMPTY, Intervals, merge, overlap_of_each, subtract, union

# Python between two ops of an ordinary model takes 5 to 50 µs, twice that under the profiler; a longer stretch is
# somebody's code, not dispatch.
PYTHON_GAP_NS = 100_000
# Launching a kernel costs tens of µs with everything around it; an op of a millisecond that launches nothing computes.
CPU_WORK_NS = 1_000_000


class HostActivity(Struct, frozen=True, eq=False):
    """The loop's thread and all threads that launch device work, taken together, over all of the trace.

    known     from the first to the last op or runtime call: outside nothing is known of the host
    python    stretches of 100 µs or more in `known` in which none of them was in an op or runtime call
    cpu_work  ops, and steps of an optimizer, of a millisecond or more that launched no device work; stretches as long
              in which nothing was launched nor waited for, as between the copies of an op that decodes on the host, or
              in a function of many ops on tensors of the host; and runtime calls as long that do not wait for the
              device (staging of pageable memory), of 100 µs where they launch nothing (allocations, loading of
              modules). A copy from the device waits for it, and for what was queued before, however few bytes it has
    still     when they did not run, though nothing held them (`Standstills`)
    """

    known: Intervals
    python: Intervals
    cpu_work: Intervals
    still: Intervals

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, links: Links, stills: Standstills) -> HostActivity:
        """Host activity of a trace; empty where it holds no host rows."""
        events = trace.events
        launches = launch_rows(events, links)
        feeds = np.zeros(len(events.threads), bool)
        feeds[events.thread[launches]] = True
        feeds[steps.main_thread : steps.main_thread + 1] = True  # -1: there is none
        feeding = feeds[events.thread]
        rows = feeding & events.of(Category.CPU_OP, Category.RUNTIME)
        if not rows.any():
            return cls(EMPTY, EMPTY, EMPTY, EMPTY)
        # The step's own rows say that the host was there, even where it ran no op at first.
        there = rows | (feeding & events.of(Category.ANNOTATION))
        here = np.flatnonzero(there)
        known = union([events.start_ns[here[0]]], [events.end_ns[here].max()])
        quiet = subtract(known, events.covered(rows))
        calls = _long_calls(events, feeding & ~blocking_calls(events) & ~_reads(events, links), launches)
        return cls(
            known=known,
            python=quiet[quiet[:, 1] - quiet[:, 0] >= PYTHON_GAP_NS],
            cpu_work=merge(
                _cpu_work(events, feeding & (events.of(Category.CPU_OP) | events.named("Optimizer.step#")), launches),
                merge(calls, _without_calls(events, feeding, launches, known)),
            ),
            still=stills.spans,
        )


def _reads(events: Events, links: Links) -> Mask:
    """Calls that copy from the device to the host."""
    found = np.zeros(len(events), bool)
    copies = np.flatnonzero(events.of(Category.MEMCPY) & events.named("DtoH") & (links.launch >= 0))
    found[links.launch[copies]] = True
    return found


def _long_calls(events: Events, rows: Mask, launches: Ints) -> Intervals:
    """A launch may stand in line for some 100 µs; another call of that length is the driver's own work."""
    long = rows & events.of(Category.RUNTIME) & (events.dur_ns >= PYTHON_GAP_NS)
    long[launches[events.dur_ns[launches] < CPU_WORK_NS]] = False
    return events.covered(long)


def _without_calls(events: Events, feeding: Mask, launches: Ints, known: Intervals) -> Intervals:
    """Stretches without any call of the runtime that launches or waits, in which ops run for long.

    An op that launches takes tens of µs before it does, and other calls of some length are looked at by themselves.
    Nothing where no calls were recorded.
    """
    calls = feeding & events.of(Category.RUNTIME) & (blocking_calls(events) | (events.dur_ns >= PYTHON_GAP_NS))
    calls[launches[feeding[launches]]] = True
    if not (calls & events.of(Category.RUNTIME)).any():
        return EMPTY
    quiet = subtract(known, events.covered(calls))
    quiet = quiet[quiet[:, 1] - quiet[:, 0] >= CPU_WORK_NS]
    in_ops = overlap_of_each(quiet[:, 0], quiet[:, 1], events.covered(feeding & events.of(Category.CPU_OP)))
    return quiet[in_ops >= CPU_WORK_NS]


def launch_rows(events: Events, links: Links) -> Ints:
    """Runtime calls that started device work, by link or by name."""
    found = launch_calls(events)
    found[links.launch[np.flatnonzero(links.launch >= 0)]] = True
    return np.flatnonzero(found)


def _cpu_work(events: Events, ops: Mask, launches: Ints) -> Intervals:
    """Long ops and updates without a launch inside, on whichever thread: weights that lie on the host take many ops."""
    long = np.flatnonzero(ops & (events.dur_ns >= CPU_WORK_NS))
    if not len(long):
        return EMPTY
    idle = np.zeros(len(long), bool)
    for thread in np.unique(events.thread[long]):
        mine = events.thread[long] == thread
        times = events.start_ns[launches[events.thread[launches] == thread]]  # in order, as all rows are
        inside = np.searchsorted(times, events.end_ns[long[mine]]) - np.searchsorted(times, events.start_ns[long[mine]])
        idle[mine] = inside == 0
    return events.covered(long[idle])

"""What a process does once, before its steps are alike: start-up, which is no part of a training step."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.classify import launch_calls, rows_named
from advisor.analyses.base.first_calls import first_calls
from advisor.analyses.base.launched import Launched
from advisor.trace.events import Category, Events, Floats, Ints, Mask, Trace
from advisor.trace.intervals import Intervals, intersect, overlap_of_each, total, union
from advisor.trace.numbers import distinct, in_order

# Below this share of a step start-up drowns in the noise between steps, as everywhere else.
_MATERIAL = 0.03
# A call that reads a property or makes a handle takes 1 µs where the driver has nothing to load, and in twelve traces
# of seven GPUs never more than 353 µs: it waits for no work of the device, so a millisecond is initialisation.
_LONG_CALL_NS = 1_000_000
# Launches of one trace differ by less than ten times unless the queue is full; loading a kernel takes 100 µs and more.
_LONG_LAUNCH, _LONG_LAUNCH_NS = 20, 100_000
# CUDA takes about 1,022 launches before a call has to wait for the device; fewer in the queue hold no launch back.
_QUEUE = 1_000
# A leading step that takes twice as long as those after it is not yet one of them.
_FAR_LONGER = 2.0
_CALLS_NAMED = 4
# A window without steps that goes on for ten times as long after start-up holds more than a first pass.
_DWARFED = 10
# The first step makes the gradients, the second meets the optimizer's state: from the fourth on memory is settled.
_SETTLED = 3

_LOADS = re.compile(
    r"^(cu|cuda|hip)(ModuleLoad|LibraryLoad|Link(Create|Add|Complete)|CtxCreate|DevicePrimaryCtxRetain|Init$"
    r"|GraphInstantiate)"
)
_HANDLES = re.compile(r"^(?!.*Mem)(cu|cuda|hip)\w*(Get|Set|Create|IsCapturing|Occupancy)")
_MEMORY = re.compile(
    r"^(cu|cuda|hip)(Malloc|Free|MemAlloc|MemFree|MemCreate|MemMap|MemSetAccess|MemAddressReserve|HostAlloc"
    r"|HostRegister|MemHostAlloc)(?!.*Async)"
)
_TIMING = re.compile(r"Event(Synchronize|ElapsedTime)")
_COMPILING = re.compile(
    r"\(dynamo_timed\)|compile_inner|async_compile|CachingAutotuner\.(benchmark|coordinate)|benchmark_all_configs"
    r"|convert_frame\.py\(\d+\): _compile|compile_fx\.py\(\d+\): "
)
FIRST_LAUNCHES, AUTOTUNING, COMPILATION = "first launches of kernels", "autotuning of convolutions", "compilation"
FIRST_CALLS = "first calls of ops"


class Startup(Struct, frozen=True):
    """The part of a trace that is start-up, by what kind of call it is and whether later steps repeat it.

    Contexts, libraries and modules that are loaded; the first launch of a kernel, and the first call of an op before
    its launch, where they take far longer than others; driver calls for memory; autotuning; compilation. Calls that the
    last step makes as well are no start-up.

    steps   leading steps that are start-up, and so in no figure
    ends_ns when the last of the calls ended that are start-up; 0 without any
    us      length of these steps, and of start-up calls outside of all steps, µs
    calls   (name, µs, number of calls), longest first
    steady  whether steps without start-up remain; where not, no figure of the trace describes the training
    """

    steps: int = 0
    us: float = 0.0
    calls: tuple[tuple[str, float, int], ...] = ()
    steady: bool = True
    ends_ns: int = 0

    def cut_off(self, window: Intervals) -> Intervals | None:
        """The rest of a window without steps, where it is so long that it holds far more than a first pass."""
        start, end = self.ends_ns, int(window[-1, 1])
        return np.array([[start, end]]) if not self.steady and end - start > _DWARFED * self.us * 1e3 else None

    @classmethod
    def of(cls, trace: Trace, launched: Launched, spans: Intervals, lengths_ns: Floats, *, number: int = 0) -> Startup:
        """The start-up of a trace.

        spans: its steps; lengths_ns: what each takes, on the host or on the device; number: how many steps of the
        process came before, as far as the trace says.
        """
        rows = dict(_startup_rows(trace, launched))
        events = trace.events
        count = len(spans)
        if number >= _SETTLED:  # what is first in the trace is not so in the process
            rows.pop(FIRST_CALLS, None)
        if count == 1 and number >= _SETTLED:
            # No other step tells whether each allocates; but nothing is allocated for the first time any more.
            rows = {name: one for name, one in rows.items() if not _MEMORY.search(name)}
        per_step = {name: _in_steps(events, one, spans) for name, one in rows.items()}
        cold = np.zeros(count)
        for spent in per_step.values():
            cold += np.where(spent > 2 * spent[-1], spent, 0.0) if count > 1 else spent
        is_cold = cold >= _MATERIAL * lengths_ns
        first = int(np.argmin(is_cold)) if not is_cold.all() else count
        first = max(first, _far_longer(lengths_ns, cold > 0, number))
        inside = union(spans[:first, 0], spans[:first, 1])
        named = _named(events, rows, int(spans[min(first, count - 1), 1 if first == count else 0]))
        called = union(*_edges(events, rows, named))
        before = total(called) - total(intersect(called, inside))
        steady = first < count
        us = (total(inside) if steady else total(called)) / 1e3
        if steady and not first and before < _MATERIAL * float(np.median(lengths_ns)):
            return cls()
        ends_ns = int(called[-1, 1]) if len(called) else 0
        return cls(first if steady else 0, us + (before / 1e3 if steady else 0.0), named, steady, ends_ns)


def _far_longer(lengths_ns: Floats, with_calls: Mask, number: int) -> int:
    """Leading steps with start-up calls that take more than twice as long as every one after them, two at least.

    Calls show but a part of what is done once. A first step that is long without any may wait for its batch. What comes
    after a step as short as the last ones is done again (another length compiles), unless the process has just begun.
    """
    after = np.maximum.accumulate(lengths_ns[::-1])[::-1]
    far = (lengths_ns[:-2] > _FAR_LONGER * after[1:-1]) & with_calls[:-2]
    ordinary = np.minimum.accumulate(np.concatenate(([np.inf], lengths_ns)))[: len(far)] <= after[1:-1]
    longer = np.flatnonzero(far & (~ordinary | (number + np.arange(len(far)) < _SETTLED)))
    return int(longer[-1]) + 1 if len(longer) else 0


def compiling(trace: Trace, spans: Intervals) -> Mask:
    """Steps of which compilation takes the most: another length, or a number that changed."""
    names = trace.events.names_where(_COMPILING.search)
    rows = np.flatnonzero(trace.events.rows_with(names))
    return 2 * _in_steps(trace.events, rows, spans) > spans[:, 1] - spans[:, 0]


def _in_steps(events: Events, rows: Ints, spans: Intervals) -> Floats:
    """Time of these rows in each step, ns."""
    covered = events.covered(rows)
    return overlap_of_each(spans[:, 0], spans[:, 1], covered).astype(float)


def _edges(events: Events, rows: dict[str, Ints], named: tuple[tuple[str, float, int], ...]) -> tuple[Ints, Ints]:
    kept = {name for name, _, _ in named}
    every = [one for name, one in rows.items() if name in kept] or [np.empty(0, np.int64)]
    joined = np.concatenate(every)
    return events.start_ns[joined], events.end_ns[joined]


def _named(events: Events, rows: dict[str, Ints], until_ns: int) -> tuple[tuple[str, float, int], ...]:
    """What took longest until then, by name."""
    found = []
    for name, every in rows.items():
        mine = every[events.start_ns[every] < until_ns]
        if len(mine):
            found.append((name, total(events.covered(mine)) / 1e3, len(mine)))
    return tuple(sorted(found, key=lambda one: -one[1])[:_CALLS_NAMED])


def _startup_rows(trace: Trace, launched: Launched) -> Iterator[tuple[str, Ints]]:
    """Rows that may be start-up, by the name of the call or by what they are for."""
    events = trace.events
    loads = rows_named(events, _LOADS.search, Category.RUNTIME)
    handles = rows_named(events, _HANDLES.search, Category.RUNTIME) & (events.dur_ns >= _LONG_CALL_NS)
    memory = rows_named(events, _MEMORY.search, Category.RUNTIME)
    yield from _by_name(events, loads | handles | memory)
    for name, rows in (
        (FIRST_LAUNCHES, _first_launches(trace, launched)),
        (FIRST_CALLS, first_calls(trace, launched)),
        (AUTOTUNING, _autotuned(events)),
        (COMPILATION, np.flatnonzero(events.rows_with(events.names_where(_COMPILING.search)))),
    ):
        if len(rows):
            yield name, rows


def _by_name(events: Events, chosen: Mask) -> Iterator[tuple[str, Ints]]:
    rows = np.flatnonzero(chosen)
    for name in distinct(events.name[rows], len(events.names)).tolist():
        yield events.names[name], rows[events.name[rows] == name]


def _first_launches(trace: Trace, launched: Launched) -> Ints:
    """Calls that launch a kernel for the first time in the trace, and take far longer than launches do."""
    events, launch = trace.events, launched.launch
    calls = launch_calls(events)
    works = np.flatnonzero(events.of(Category.KERNEL) & (launch >= 0))
    works = works[calls[launch[works]]]
    if not len(works):
        return np.empty(0, np.int64)
    works = works[np.argsort(events.start_ns[launch[works]], kind="stable")]
    name = events.name[works]
    earliest = np.full(len(events.names), len(works))
    earliest[name[::-1]] = np.arange(len(works))[::-1]  # of several with one name the last that is written stays
    first = launch[works[earliest[earliest < len(works)]]]
    usual = float(np.median(events.dur_ns[launch[works]]))
    first = np.unique(first[events.dur_ns[first] >= max(_LONG_LAUNCH * usual, _LONG_LAUNCH_NS)])
    if not len(first):
        return first
    # A full queue holds launches back as well: that is the device's pace. What has no launch was queued before.
    every = np.flatnonzero(trace.device_work)
    queued = np.where(launch[every] >= 0, events.start_ns[np.maximum(launch[every], 0)], np.iinfo(np.int64).min)
    begun = np.searchsorted(in_order(queued), events.start_ns[first])
    done = np.searchsorted(in_order(events.end_ns[every]), events.start_ns[first])
    kept: Ints = first[begun - done < _QUEUE]
    return kept


def _autotuned(events: Events) -> Ints:
    """Convolutions in which the library times its algorithms: it waits for events, which no convolution needs."""
    timed = np.flatnonzero(rows_named(events, _TIMING.search, Category.RUNTIME))
    if not len(timed):
        return timed
    ops = np.flatnonzero(events.of(Category.CPU_OP) & events.named("convolution"))
    found = []
    for thread in np.unique(events.thread[timed]).tolist():
        waits = events.start_ns[timed[events.thread[timed] == thread]]
        mine = ops[events.thread[ops] == thread]
        within = np.searchsorted(waits, events.end_ns[mine]) > np.searchsorted(waits, events.start_ns[mine])
        found.append(mine[within])
    return np.concatenate(found)

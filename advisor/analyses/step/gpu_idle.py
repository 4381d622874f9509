"""Why the device idles: every gap with its cause, by what the host did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from advisor.analyses.base.gpu_busy import GpuBusy
from advisor.analyses.base.host_communication import host_collectives
from advisor.analyses.base.links import Links
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.blocking_calls import Drains
from advisor.analyses.step.gap_owners import Hosts, Named, Neighbours
from advisor.analyses.step.host_activity import HostActivity
from advisor.analyses.step.input_wait import fetch_rows
from advisor.model import Source
from advisor.trace.events import Events, Floats, Ints, Trace
from advisor.trace.intervals import EMPTY, Intervals, intersect, merge, subtract, total, union

Cause = Literal["idle_input", "idle_sync", "idle_launch", "idle_host", "idle_unknown"]
CAUSES: tuple[Cause, ...] = ("idle_input", "idle_sync", "idle_launch", "idle_host", "idle_unknown")


class Gap(Struct, frozen=True):
    """An interval of device idle time with one cause; a longer gap with several causes is several of these.

    after, before  names of the device work before and after the whole gap, "" at the ends of the trace
    host           the op, call or function that ran on the host for most of it, "" if none was recorded
    where          the user's code that ran meanwhile
    """

    start_ns: int
    end_ns: int
    cause: Cause
    after: str = ""
    before: str = ""
    host: str = ""
    where: Source | None = None

    @property
    def us(self) -> float:
        """Length in µs."""
        return (self.end_ns - self.start_ns) / 1e3


class Gaps(Struct, frozen=True, eq=False):
    """All gaps in order, as columns: a trace holds hundreds of thousands. Iterating makes the `Gap`s.

    cause          index into CAUSES
    after, before  rows of the device work around, -1 at the ends of the trace
    named          index into `names`: host work and the user's line
    """

    names: tuple[Named, ...]
    events: Events
    start_ns: Ints
    end_ns: Ints
    cause: Ints
    after: Ints
    before: Ints
    named: Ints

    def __len__(self) -> int:
        return len(self.start_ns)

    def __iter__(self) -> Iterator[Gap]:
        return self._made(slice(None))

    def between(self, start_ns: int, end_ns: int) -> Iterator[Gap]:
        """The gaps that reach into a stretch."""
        return self._made(np.flatnonzero((self.start_ns < end_ns) & (self.end_ns > start_ns)))

    def us(self, rows: Ints) -> Floats:
        """Lengths of some gaps, µs."""
        lengths: Floats = (self.end_ns[rows] - self.start_ns[rows]) / 1e3
        return lengths

    def groups(self, cause: str) -> Iterator[tuple[Named, Ints]]:
        """Host work and line of the gaps of one cause, in order of first sight, each with the rows of its gaps."""
        mine = np.flatnonzero(self.cause == CAUSES.index(cause)) if cause in CAUSES else np.empty(0, np.int64)
        mine = mine[np.argsort(self.named[mine], kind="stable")]
        parts = np.split(mine, np.flatnonzero(np.diff(self.named[mine])) + 1) if len(mine) else []
        for rows in sorted(parts, key=lambda part: int(part[0])):
            yield self.names[int(self.named[rows[0]])], rows

    def _made(self, which: slice | Ints) -> Iterator[Gap]:
        columns = (self.start_ns, self.end_ns, self.cause, self.after, self.before, self.named)
        text, names = self.events.text, self.names
        for start, end, cause, after, before, named in zip(*(c[which].tolist() for c in columns), strict=True):
            around = text(after) if after >= 0 else "", text(before) if before >= 0 else ""
            yield Gap(start, end, CAUSES[cause], *around, *names[named])


class IdleGroup(Struct, frozen=True):
    """Gaps of one cause that share host work and source line; µs and gaps per step."""

    host: str
    where: Source | None
    us: float
    gaps_per_step: float


class GpuIdle(Struct, frozen=True, eq=False):
    """W minus device work, each instant with one cause, decided in this order:

    idle_input    the loop's thread waits in a fetch from its loader
    idle_unknown  the next work was queued already when the gap began, or the trace has no host events there, or it is
                  between the profiler's events of two steps, where only the profiler's own `step()` runs
    idle_sync     the queue drained in a blocking host call that really waited; lasts until the next device work, but no
                  longer than the wait (the host would have been that much ahead), and without intervals of a
                  millisecond or more in which the host did other work, or in which its threads did not run
    idle_host     the host did something other than launching: it did not run, though nothing held it (`Standstills`),
                  a collective of a CPU backend (the device waits for it
                  even if a sync does, too), an interval of 100 µs or more without op or runtime call, an op of a
                  millisecond or more that launched nothing, a runtime call of that length that waits for nothing, or
                  of 100 µs that launches nothing either
    idle_launch   everything else: the host was running ops before the next launch, and nothing was queued

    gaps          one Gap per interval of one cause, in order (iterate)
    intervals     cause -> Intervals; disjoint, their union is W minus busy
    by_cause_us   cause -> µs per step (all five keys)
    nobodys_us    the part of idle_unknown in which the next work was queued already (between two kernels the device
                  itself needs a µs or two), or that is the profiler's, µs per step: no change of the script saves it
    share         idle time / |W|, without profiler overhead: the metric device_idle_share
    """

    gaps: Gaps
    intervals: dict[str, Intervals]
    by_cause_us: dict[str, float]
    nobodys_us: float
    share: float
    steps_count: float

    @property
    def explained(self) -> Intervals:
        """Idle time of every cause that is known."""
        known = np.concatenate([spans for cause, spans in self.intervals.items() if cause != "idle_unknown"])
        return union(known[:, 0], known[:, 1])

    def top(self, cause: str, n: int = 5) -> tuple[IdleGroup, ...]:
        """The largest groups of gaps of one cause, by host work and line."""
        rows = []
        for (host, where), mine in self.gaps.groups(cause):
            us = sum(self.gaps.us(mine).tolist())
            rows.append(IdleGroup(host, where, us / self.steps_count, len(mine) / self.steps_count))
        return tuple(sorted(rows, key=lambda row: -row.us)[:n])

    def spans_of(self, cause: str, group: IdleGroup) -> Intervals:
        """The gaps of one of `top`'s groups."""
        for named, mine in self.gaps.groups(cause):
            if named == (group.host, group.where):
                return union(self.gaps.start_ns[mine], self.gaps.end_ns[mine])
        return EMPTY

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        busy: GpuBusy,
        links: Links,
        drains: Drains,
        activity: HostActivity,
        hosts: Hosts,
    ) -> GpuIdle:
        """Idle time by cause. Missing without device work."""
        idle = subtract(steps.window, busy.busy)
        around = Neighbours(trace, links)
        next_work = around.before(idle[:, 1])
        nobodys = merge(_queued(idle, around.launched_ns(next_work)), _between_rows(steps))
        intervals = _causes(trace, steps, idle, nobodys, drains, activity)
        # What the profiler added to the host is no idle time of the steps without it.
        per_step = steps.of_window / busy.rest if busy.rest else float("inf")
        return cls(
            gaps=_gaps(trace, idle, intervals, around.after(idle[:, 0]), next_work, hosts),
            intervals=intervals,
            by_cause_us={cause: total(intervals[cause]) / per_step / 1e3 for cause in CAUSES},
            nobodys_us=total(intersect(intervals["idle_unknown"], nobodys)) / per_step / 1e3,
            share=1 - busy.share,
            steps_count=per_step,
        )


# A stretch of this length in which the host did something of its own is not the sync's doing, even right after one.
_OWN_WORK_NS = 1_000_000


def _causes(
    trace: Trace, steps: Steps, idle: Intervals, nobodys: Intervals, drains: Drains, activity: HostActivity
) -> dict[str, Intervals]:
    """Splits idle time by cause; disjoint, and nothing is left out."""
    events = trace.events
    fetches = fetch_rows(events) & (events.thread == steps.main_thread)
    at_loader = events.covered(fetches)
    found = {"idle_input": intersect(idle, at_loader)}
    left = subtract(idle, at_loader)
    # With work in the queue the host is not in the way, whatever it does meanwhile.
    dark = merge(nobodys, subtract(steps.window, activity.known))
    found["idle_unknown"] = intersect(left, dark)
    left = subtract(left, dark)
    talking = events.covered(host_collectives(events))
    own = activity.python[activity.python[:, 1] - activity.python[:, 0] >= _OWN_WORK_NS]
    own = merge(merge(merge(own, activity.cpu_work), talking), activity.still)
    found["idle_sync"] = intersect(subtract(left, own), _drained(drains))
    left = subtract(left, found["idle_sync"])
    found["idle_host"] = intersect(left, merge(activity.python, own))
    found["idle_launch"] = subtract(left, found["idle_host"])
    return {cause: found[cause] for cause in CAUSES}


def _between_rows(steps: Steps) -> Intervals:
    """From the end of a step's row to the start of the next: both are written by one call of the profiler."""
    if not all(label.startswith("ProfilerStep#") for label in steps.labels):
        return EMPTY
    return subtract(steps.recorded, steps.spans)


def _drained(drains: Drains) -> Intervals:
    """From the emptying of the queue by a sync that waited to the next device work, as far as the wait explains it.

    Without the sync the host would have been ahead by the time it waited, and no more.
    """
    waited = drains.waited_ns > 0
    start = drains.begin_ns[waited] + drains.waited_ns[waited]
    return union(start, np.minimum(drains.until_ns[waited], start + drains.waited_ns[waited]))


def _queued(idle: Intervals, launched_ns: Ints) -> Intervals:
    """Gaps whose next device work had been launched before they began: not the host's doing."""
    return idle[np.flatnonzero((launched_ns >= 0) & (launched_ns < idle[:, 0]))]


def _gaps(
    trace: Trace, idle: Intervals, intervals: dict[str, Intervals], last_work: Ints, next_work: Ints, hosts: Hosts
) -> Gaps:
    """Every stretch of one cause, named. last_work, next_work: rows of the work around each stretch of idleness."""
    parts: list[tuple[Intervals | Ints, ...]] = []
    names: dict[Named, int] = {}
    for number, cause in enumerate(CAUSES):
        pieces = intervals[cause]
        if not len(pieces):
            continue
        gap = np.searchsorted(idle[:, 0], pieces[:, 0], side="right") - 1
        before = next_work[gap]
        which, distinct = hosts.of(cause, pieces, gap, before)
        who = np.array([names.setdefault(one, len(names)) for one in distinct], np.int64)[which]
        parts.append((pieces, np.full(len(pieces), number), last_work[gap], before, who))
    if not parts:
        parts.append((EMPTY, *(np.empty(0, np.int64) for _ in range(4))))
    spans, *rest = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(spans[:, 0], kind="stable")
    return Gaps(tuple(names), trace.events, *spans[order].T, *(column.take(order) for column in rest))

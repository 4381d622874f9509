"""Who ran on the host during a stretch of device idleness, and between which device works it lies."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import Lines
from advisor.analyses.step.blocking_calls import Drains
from advisor.analyses.step.input_wait import fetch_rows
from advisor.analyses.step.standstills import Standstills
from advisor.model import Source
from advisor.trace.events import Category, Events, Ints, Trace
from advisor.trace.intervals import Intervals, overlap_of_each
from advisor.trace.numbers import order_by

# What `host` says of a stretch in which no op ran and no Python frame was recorded.
PYTHON = "Python"
# The profiler's own name for a run of the cyclic garbage collector.
GARBAGE = "Python GC"
# What `host` says of a stretch in which nothing ran on the host, though nothing held it.
STANDSTILL = "threads that do not run"


class Neighbours:
    """The device work around an instant of idleness: by the latest end before it, and the next start after it."""

    def __init__(self, trace: Trace, links: Links) -> None:
        self.events = trace.events
        work = np.flatnonzero(trace.device_work)
        self.launch, self.is_before = links.launch, links.before
        # Of works that start together, the one that was queued first speaks for the gap; the rest is for a fixed order.
        launched = self.launched_ns(work)
        known_first = np.where(launched >= 0, launched, np.iinfo(np.int64).max)
        name, start, end = self.events.name[work], self.events.start_ns[work], self.events.end_ns[work]
        self.starts_ns, self.by_start = start, work[order_by(start, known_first, name)]
        order = order_by(end, name)
        self.ends_ns, self.by_end = end[order], work[order]

    def after(self, time_ns: Ints) -> Ints:
        """Row of the work that ended last before each instant, -1 where there is none."""
        return _pick(self.by_end, np.searchsorted(self.ends_ns, time_ns, side="right") - 1)

    def before(self, time_ns: Ints) -> Ints:
        """Row of the work that starts next after each instant, -1 where there is none."""
        return _pick(self.by_start, np.searchsorted(self.starts_ns, time_ns, side="left"))

    def launched_ns(self, rows: Ints) -> Ints:
        """When the host launched each work; 0 for what was queued before the recording began, -1 where unknown."""
        launch = np.where(rows >= 0, self.launch.take(np.maximum(rows, 0)), -1)
        unknown = np.where((rows >= 0) & self.is_before.take(np.maximum(rows, 0)), 0, -1)
        return np.where(launch >= 0, self.events.start_ns.take(np.maximum(launch, 0)), unknown)


def _pick(rows: Ints, index: Ints) -> Ints:
    if not len(rows):
        return np.full(len(index), -1, np.int64)
    valid = (index >= 0) & (index < len(rows))
    return np.where(valid, rows[np.clip(index, 0, len(rows) - 1)], -1)


Named = tuple[str, Source | None]


class Hosts(Struct, frozen=True, eq=False):
    """Names the host work of stretches of idleness.

    top, top_ns rows of the outermost ops of all threads, by start, and these starts
    fetches     rows of the loop's fetches
    collecting  when Python's garbage collector ran, where it was recorded
    still       when threads did not run, though nothing held them
    """

    events: Events
    lines: Lines
    nesting: Nesting
    links: Links
    drains: Drains
    top: Ints
    top_ns: Ints
    fetches: Ints
    collecting: Intervals
    still: Intervals

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        nesting: Nesting,
        lines: Lines,
        links: Links,
        drains: Drains,
        stills: Standstills,
    ) -> Hosts:
        """What names are looked up in."""
        events = trace.events
        outermost = events.of(Category.CPU_OP) & nesting.outermost
        fetches = fetch_rows(events) & (events.thread == steps.main_thread)
        garbage = events.of(Category.PYTHON) & events.exactly(GARBAGE)
        collecting = events.covered(garbage)
        top = np.flatnonzero(outermost)
        tables = (top, events.start_ns[top], np.flatnonzero(fetches), collecting, stills.spans)
        return cls(events, lines, nesting, links, drains, *tables)

    def of(self, cause: str, pieces: Intervals, gap: Ints, before: Ints) -> tuple[Ints, list[Named]]:
        """Host work and the user's line of each piece, as an index into the distinct ones.

        gap: the gap that each piece lies in; before: row of the next work.
        """
        if cause == "idle_input":
            return self._rows(_pick(self.fetches, _last(self.events.start_ns[self.fetches], pieces[:, 0])))
        if cause == "idle_sync":
            waited = np.flatnonzero(self.drains.waited_ns > 0)
            drained = self.drains.begin_ns[waited] + self.drains.waited_ns[waited]
            order = np.argsort(drained, kind="stable")
            return self._rows(_pick(self.drains.op[waited][order], _last(drained[order], pieces[:, 0])))
        if cause == "idle_launch":
            launch = np.where(before >= 0, self.links.launch[np.maximum(before, 0)], -1)
            outer = np.where(launch >= 0, self.nesting.outer_op[np.maximum(launch, 0)], -1)
            # Without a link: the op in which the host is when the work starts.
            running = _pick(self.top, _last(self.top_ns, pieces[:, 1] - 1))
            running = np.where(self.events.end_ns[running] >= pieces[:, 1], running, -1)
            return self._rows(np.where(outer >= 0, outer, np.where(launch >= 0, launch, running)))
        if cause == "idle_host":
            return self._own_work(pieces, gap)
        return np.zeros(len(pieces), np.int64), [("", None)]

    def _rows(self, rows: Ints) -> tuple[Ints, list[Named]]:
        """Rows of one name and one line are one."""
        known = rows >= 0
        name = np.where(known, self.events.name[rows], -1).astype(np.int64)
        line = self.lines.op_source[rows] if len(self.lines.op_source) else np.full(len(rows), -1)
        key = name * (len(self.lines.sources) + 1) + np.where(known, line, -1)
        _, first, which = np.unique(key, return_index=True, return_inverse=True)
        return which.reshape(-1), [
            (self.events.text(row), self.lines.where_op(row)) if row >= 0 else ("", None)
            for row in rows[first].tolist()
        ]

    def _own_work(self, pieces: Intervals, gap: Ints) -> tuple[Ints, list[Named]]:
        """One name for all pieces of a gap: what ran for most of the time from the first to the last of them."""
        distinct: dict[Named, int] = {("", None): 0}
        first = np.flatnonzero(np.concatenate(([True], gap[1:] != gap[:-1])))
        last = np.append(first[1:], len(pieces)) - 1
        of_gap = np.zeros(len(first), np.int64)
        length = pieces[last, 1] - pieces[first, 0]
        for k in np.argsort(-length, kind="stable")[:_MOST_NAMED].tolist():
            name = self._most(int(pieces[first[k], 0]), int(pieces[last[k], 1]))
            of_gap[k] = distinct.setdefault(name, len(distinct))
        return np.repeat(of_gap, last - first + 1), list(distinct)

    def _most(self, start_ns: int, end_ns: int) -> Named:
        """The op that has most of the stretch, else the user's function or line, else Python."""
        events = self.events
        # Outermost rows of a few threads: of those that start before the end, the ones that matter are the last.
        stop = int(np.searchsorted(self.top_ns, end_ns, side="left"))
        near = self.top[max(0, stop - _NEAR) : stop]
        overlap = np.minimum(events.end_ns[near], end_ns) - np.maximum(events.start_ns[near], start_ns)
        if 2 * int(overlap_of_each([start_ns], [end_ns], self.still)[0]) > end_ns - start_ns:
            return STANDSTILL, None
        where, ran = self.lines.what_ran(start_ns, end_ns)
        if 2 * int(overlap_of_each([start_ns], [end_ns], self.collecting)[0]) > end_ns - start_ns:
            return GARBAGE, where
        if len(near) and 2 * int(overlap.max()) > end_ns - start_ns:
            row = int(near[int(np.argmax(overlap))])
            return events.text(row), self.lines.where_op(row) or where
        return ran or PYTHON, where


# Gaps beyond this number are shorter than all of these; naming each costs 50 µs.
_MOST_NAMED = 2_000
# How many outermost ops back to look: a stretch that spans more of them has none that fills most of it.
_NEAR = 400


def _last(sorted_ns: Ints, time_ns: Ints) -> Ints:
    """Index of the last entry that is not later than each instant, -1 where there is none."""
    return np.searchsorted(sorted_ns, time_ns, side="right") - 1

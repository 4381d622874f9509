"""The median step as lanes of drawable segments: loader, threads, streams, communication, and why the device idles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from advisor.analyses.base.classify import communication_rows
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.step.gpu_idle import GpuIdle
from advisor.analyses.step.input_wait import fetch_rows
from advisor.analyses.step.phases import backward_rows, optimizer_rows
from advisor.computed import Computed
from advisor.model import Lane, Segment, Timeline
from advisor.trace.events import Category, Events, Ints, Trace
from advisor.trace.intervals import overlap_of_each, union
from advisor.trace.numbers import distinct_pairs

Words = npt.NDArray[np.str_]

# More segments than this are narrower than two pixels of a page 1,200 wide, and only make it heavy.
MOST_SEGMENTS = 150
# Threads beyond these few run nothing that a reader could place.
_MOST_THREADS, _MOST_STREAMS = 4, 6
_HOST_WORDS = np.array(["", "op", "runtime", "optimizer", "backward", "communication"])
_NOTHING = 0
_WORK_KINDS = {Category.KERNEL: "kernel", Category.MEMCPY: "copy", Category.MEMSET: "memset"}


def timeline(computed: Computed) -> Timeline | None:
    """The step of median duration; None where nothing in it can be drawn."""
    steps, trace = computed.get(Steps), computed.get(Trace)
    start, end = (int(edge) for edge in steps.spans[steps.median_index])
    idle = computed.find(GpuIdle)
    view = _View(trace, steps, computed.get(Nesting), start, end)
    lanes = [*view.input(), *view.threads(), *view.streams()]
    if idle is not None:
        lanes.append(view.idle(idle))
    lanes = [lane for lane in lanes if lane.segments]
    if not lanes:
        return None
    return Timeline(steps.labels[steps.median_index], (end - start) / 1e3, tuple(lanes))


class _View:
    """One step of a trace, as lanes."""

    def __init__(self, trace: Trace, steps: Steps, nesting: Nesting, start: int, end: int) -> None:
        self.events, self.steps, self.nesting = trace.events, steps, nesting
        self.start, self.end = start, end
        events = self.events
        before = slice(int(np.searchsorted(events.start_ns, end)))  # rows are in order of their starts
        inside = np.flatnonzero((events.end_ns[before] > start) & (events.dur_ns[before] > 0))
        self.inside, self.work = inside, inside[trace.device_work[inside]]

    def input(self) -> Iterator[Lane]:
        """Fetches of the loop."""
        rows = self.inside[fetch_rows(self.events)[self.inside]]
        rows = rows[self.events.thread[rows] == self.steps.main_thread]
        yield self._lane("input", rows, np.array(["input"] * len(rows)))

    def threads(self) -> Iterator[Lane]:
        """Outermost ops, optimizer spans and lone runtime calls of the busiest threads, the loop's first."""
        events = self.events
        kinds = self._host_kinds()
        shown, kinds = self.inside[kinds != _NOTHING], kinds[kinds != _NOTHING]
        threads, spent = np.unique(events.thread[shown], return_counts=True)
        order = np.lexsort((-spent, threads != self.steps.main_thread))
        for thread in threads[order][:_MOST_THREADS]:
            mine = events.thread[shown] == thread
            name = "main thread" if thread == self.steps.main_thread else _thread_name(events, int(thread))
            yield self._lane(name, shown[mine], _HOST_WORDS[kinds[mine]])

    def _host_kinds(self) -> npt.NDArray[np.int8]:
        """The kind of each row of the step (index into _HOST_WORDS): rows inside a drawn one are not drawn."""
        events, inside = self.events, self.inside
        category, fetches = events.category[inside], fetch_rows(events)[inside]
        kinds = np.full(len(inside), _NOTHING, np.int8)
        kinds[category == Category.CPU_OP] = 1
        kinds[category == Category.RUNTIME] = 2
        kinds[optimizer_rows(events)[inside]] = 3
        kinds[backward_rows(events)[inside]] = 4
        said = (category == Category.ANNOTATION) | (category == Category.CPU_OP)
        kinds[said & communication_rows(events)[inside]] = 5
        kinds[fetches] = _NOTHING
        # What encloses a row of the step reaches into the step as well.
        drawn = np.zeros(len(events), bool)
        drawn[inside[(kinds != _NOTHING) | fetches]] = True
        kinds[self.nesting.ancestor_of(self.nesting.parent[inside], drawn) >= 0] = _NOTHING
        return kinds

    def streams(self) -> Iterator[Lane]:
        """The busiest streams; communication has a lane of its own."""
        events = self.events
        talking = communication_rows(events)[self.work] & (events.category[self.work] == Category.KERNEL)
        rest = self.work[~talking]
        streams, stream_of = distinct_pairs(events.device[rest], events.stream[rest])
        spent = np.bincount(stream_of, minlength=len(streams))
        several = len(np.unique(streams[:, 0])) > 1
        for index in np.argsort(-spent, kind="stable")[:_MOST_STREAMS].tolist():
            device, stream = streams[index].tolist()
            label = f"device {device}, stream {stream}" if several else f"stream {stream}"
            yield self._work_lane(label, rest[stream_of == index])
        rows = self.work[talking]
        yield self._lane("communication", rows, np.full(len(rows), "communication"))

    def _work_lane(self, name: str, rows: Ints) -> Lane:
        kinds = np.full(len(rows), "", "U16")
        for category, kind in _WORK_KINDS.items():
            kinds[self.events.category[rows] == category] = kind
        return self._lane(name, rows, kinds)

    def idle(self, idle: GpuIdle) -> Lane:
        """Idle gaps by cause."""
        gaps = list(idle.gaps.between(self.start, self.end))
        edges = np.array([(gap.start_ns, gap.end_ns) for gap in gaps], np.int64).reshape(-1, 2)
        kinds = np.array([gap.cause for gap in gaps], "U16")
        return Lane("device idle", self._segments(edges, kinds, [gap.host or gap.cause for gap in gaps]))

    def _lane(self, name: str, rows: Ints, kinds: Words) -> Lane:
        events = self.events
        edges = np.column_stack((events.start_ns[rows], events.end_ns[rows]))
        return Lane(name, self._segments(edges, kinds, [events.text(row) for row in rows.tolist()]))

    def _segments(self, edges: Ints, kinds: Words, labels: list[str]) -> tuple[Segment, ...]:
        """Segments of the step; where there are too many, neighbours closer than a pixel or two become one."""
        if not len(edges):
            return ()
        edges = np.clip(edges, self.start, self.end) - self.start
        if len(edges) <= MOST_SEGMENTS:
            return tuple(
                Segment(low / 1e3, (high - low) / 1e3, str(kind), label)
                for (low, high), kind, label in zip(edges.tolist(), kinds, labels, strict=True)
            )
        names, number = np.unique(kinds, return_inverse=True)
        kind = number.astype(np.int64)
        for bins in _BINS:
            borders = np.linspace(0, self.end - self.start, bins + 1).astype(np.int64)
            shown = _shown(edges, kind, len(names), borders)
            first = np.flatnonzero(np.concatenate(([True], shown[1:] != shown[:-1])))
            if (shown[first] < len(names)).sum() <= MOST_SEGMENTS:
                break
        return _labelled(edges, kind, labels, names.tolist(), borders, shown, first)


# Equal parts of the step, finest first; runs of parts of one kind are one segment, so the last always fits.
_BINS = (4800, 2400, 1200, 600, 300, MOST_SEGMENTS)


def _shown(edges: Ints, kinds: Ints, count: int, borders: Ints) -> Ints:
    """What each part shows: the kind that has most of it, `count` where it is mostly empty."""
    covered = np.array(
        [overlap_of_each(borders[:-1], borders[1:], union(*edges[kinds == kind].T)) for kind in range(count)], np.int64
    )
    empty = np.diff(borders) - np.minimum(covered.sum(axis=0), np.diff(borders))
    return np.asarray(np.argmax(np.vstack((covered, empty)), axis=0), np.int64)


def _labelled(
    edges: Ints, kinds: Ints, labels: list[str], names: list[str], borders: Ints, shown: Ints, first: Ints
) -> tuple[Segment, ...]:
    """One segment for each run of parts that show one kind, labelled by its longest piece. first: of each run."""
    length = edges[:, 1] - edges[:, 0]
    order = np.argsort(-length, kind="stable")
    middle = np.searchsorted(borders, edges.sum(axis=1) // 2, side="right") - 1
    run = np.searchsorted(first, middle, side="right") - 1
    fits = shown[np.clip(middle, 0, len(shown) - 1)] == kinds
    number = np.bincount(run[fits], minlength=len(first)).tolist()
    longest = order[fits[order]][::-1]
    best = dict(zip(run[longest].tolist(), longest.tolist(), strict=True))
    segments = []
    for i, (low, high) in enumerate(zip(first.tolist(), [*first[1:].tolist(), len(shown)], strict=True)):
        if shown[low] < len(names):
            start, end, name = int(borders[low]), int(borders[high]), names[shown[low]]
            label = labels[best[i]] if i in best else name
            more = f" and {number[i] - 1} more" if number[i] > 1 else ""
            segments.append(Segment(start / 1e3, (end - start) / 1e3, name, label + more))
    return tuple(segments)


def _thread_name(events: Events, thread: int) -> str:
    found = events.threads[thread]
    return found.name or f"thread {found.tid}"

"""The iterations of the training loop inside a trace, and the window that every share refers to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from advisor.analyses.base.optimizer_closures import closure_spans
from advisor.capture.record import RankRecord, StepTimes
from advisor.computed import Missing
from advisor.model import StepSource
from advisor.trace.events import DEVICE_WORK, Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import Intervals, overlap_of_each, total, union


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Whole steps (the `ProfilerStep#N` rows of the CPU) and the window W that they span.

    spans        (n, 2) start and end of each step, ns, in order
    labels       the name of each step
    window       W: from the start of the first step to the end of the last; steps further apart than a median step
                 belong to separate windows, and W is their union. Without steps: from the start of the first CPU op or
                 device work to the end of the last, as one step
    source       what marked the steps: user | loader | optimizer | window; in a window without marks, optimizer steps
                 that compute the loss in a closure are steps
    count        number of steps, at least 1
    eval_count   segments without a backward that capture saw; in no training figure
    cut_off      whether a last `ProfilerStep` row without an op or call in it was left out: it ended as it began
    main_thread  index into `events.threads` of the thread that runs the loop
    profiled_us  duration of each step, µs
    starts_ns    starts of all events of the trace: what is asked for again and again, and answered once
    """

    spans: Intervals
    labels: tuple[str, ...]
    window: Intervals
    source: StepSource
    count: int
    eval_count: int
    main_thread: int
    profiled_us: tuple[float, ...]
    cut_off: bool = False
    starts_ns: Ints | None = field(default=None, repr=False)
    _of_starts: list[Ints] = field(default_factory=list, init=False, repr=False)

    @property
    def window_ns(self) -> int:
        """|W| in ns."""
        return total(self.window)

    @property
    def step_us(self) -> float:
        """|W| per step, µs: what the breakdown's µs sum to."""
        return self.window_ns / self.count / 1e3

    @property
    def median_index(self) -> int:
        """The step whose duration is the (lower) median: the one to draw."""
        order = np.argsort(np.asarray(self.profiled_us), kind="stable")
        return int(order[(len(order) - 1) // 2])

    def per_step_us(self, ns: float) -> float:
        """A total in ns as µs per step."""
        return ns / self.count / 1e3

    def step_of(self, time_ns: Ints) -> Ints:
        """The step that each instant belongs to; time between two steps of a window counts to the earlier; else -1."""
        if time_ns is not self.starts_ns:
            return self._step_of(time_ns)
        if not self._of_starts:
            self._of_starts.append(self._step_of(time_ns))
            self._of_starts[0].setflags(write=False)
        return self._of_starts[0]

    def _step_of(self, time_ns: Ints) -> Ints:
        edges = np.concatenate((self.spans[:, 0], self.window.ravel()))
        if len(time_ns) <= len(edges) or (time_ns[1:] < time_ns[:-1]).any():
            return self._looked_up(time_ns)
        # Columns of events are in order of time: between two edges all belong to one step.
        first = np.unique(np.append(np.searchsorted(time_ns, edges, side="left"), 0))
        first = first[first < len(time_ns)]
        return np.repeat(self._looked_up(time_ns[first]), np.diff(first, append=len(time_ns)))

    def _looked_up(self, time_ns: Ints) -> Ints:
        index = np.searchsorted(self.spans[:, 0], time_ns, side="right") - 1
        window = np.searchsorted(self.window[:, 0], time_ns, side="right") - 1
        inside = (window >= 0) & (time_ns < self.window[np.maximum(window, 0), 1])
        return np.where(inside, index, -1).astype(np.int64, copy=False)

    @classmethod
    def compute(cls, trace: Trace, record: RankRecord | None) -> Steps:
        """Steps of a trace. Raises Missing for a trace without CPU ops and device work."""
        events = trace.events
        recorded = record.steps if record else StepTimes()
        rows = _step_rows(trace)
        cut_off = len(rows) > 1 and _is_empty(events, int(rows[-1]))
        rows = rows[:-1] if cut_off else rows
        spans = np.column_stack((events.start_ns[rows], events.end_ns[rows]))
        # The rows are the user's own prof.step() on a bare trace; capture knows what made it step.
        source = _source(recorded.source) if record else "user"
        if not len(rows) and record:
            rows, spans = _steps_with_closures(events)
            source = "optimizer"
        if not len(rows):
            window = _whole(trace)
            length_us = (float(window[0, 1] - window[0, 0]) / 1e3,)
            main = _busiest_thread(trace)
            count = recorded.eval_count
            return cls(window, ("window",), window, "window", 1, count, main, length_us, starts_ns=events.start_ns)
        return cls(
            spans=spans,
            labels=tuple(events.text(row) for row in rows),
            window=_windows(spans),
            source=source,
            count=len(rows),
            eval_count=recorded.eval_count,
            main_thread=int(events.thread[rows[0]]),
            profiled_us=tuple(float(us) for us in (spans[:, 1] - spans[:, 0]) / 1e3),
            cut_off=cut_off,
            starts_ns=events.start_ns,
        )


def _step_rows(trace: Trace) -> Ints:
    """Rows of whole steps in order: one thread's, without rows that repeat or overlap an earlier step."""
    events = trace.events
    is_step = events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("ProfilerStep#") & (events.dur_ns > 0)
    rows = np.flatnonzero(is_step)
    if not len(rows):
        return rows
    threads, number = np.unique(events.thread[rows], return_counts=True)
    rows = rows[events.thread[rows] == threads[np.argmax(number)]]
    reach = np.maximum.accumulate(events.end_ns[rows])
    apart: Mask = np.concatenate(([True], events.start_ns[rows[1:]] >= reach[:-1]))
    whole: Ints = rows[apart]
    return whole


def _steps_with_closures(events: Events) -> tuple[Ints, Intervals]:
    """Rows and spans of steps whose optimizer computes the loss itself, from one optimizer step to the next.

    Capture cannot mark them: between two of them it hears nothing. The last one's end is not known.
    """
    rows = np.flatnonzero(events.of(Category.ANNOTATION, Category.CPU_OP) & events.named("Optimizer.step#"))
    inside = overlap_of_each(events.start_ns[rows], events.end_ns[rows], closure_spans(events))
    rows = rows[inside > 0]
    rows = rows[events.thread[rows] == events.thread[rows[0]]] if len(rows) else rows
    starts = events.start_ns[rows]
    return rows[:-1], np.column_stack((starts[:-1], starts[1:]))


def _is_empty(events: Events, row: int) -> bool:
    """Whether nothing was called in a step: the profiler opened it after the last batch, and stopped."""
    inside = (events.start_ns >= events.start_ns[row]) & (events.start_ns < events.end_ns[row])
    return not (inside & events.of(Category.CPU_OP, Category.RUNTIME, *DEVICE_WORK)).any()


def _windows(spans: Intervals) -> Intervals:
    """Steps further apart than a median step were recorded in separate windows."""
    apart = spans[1:, 0] - spans[:-1, 1] > np.median(spans[:, 1] - spans[:, 0])
    first = np.concatenate(([True], apart))
    last = np.concatenate((apart, [True]))
    return np.column_stack((spans[first, 0], spans[last, 1]))


def _whole(trace: Trace) -> Intervals:
    """From the first CPU op, device work or row of a foreign device to the end of the last."""
    events = trace.events
    used = events.of(Category.CPU_OP, Category.FOREIGN_DEVICE, *DEVICE_WORK)
    if not used.any():
        used = events.of(Category.RUNTIME, Category.ANNOTATION, Category.PYTHON)
    start, end = events.start_ns[used], events.end_ns[used]
    if not len(start) or end.max() <= start.min():
        raise Missing("the trace holds neither CPU ops nor device work; record it again while the training runs")
    return union([start.min()], [end.max()])


def _busiest_thread(trace: Trace) -> int:
    """Without steps: the thread that fetched or stepped an optimizer, else that which is longest in CPU ops."""
    events = trace.events
    for used in (
        events.of(Category.ANNOTATION) & events.named("enumerate(DataLoader)#", "Optimizer.step#"),
        events.of(Category.CPU_OP) & ~events.named("autograd::engine::evaluate_function"),
        events.of(Category.PYTHON, Category.RUNTIME),
    ):
        if used.any():
            covered = {int(thread): _covered(events, used, thread) for thread in np.unique(events.thread[used])}
            return max(covered, key=covered.__getitem__)
    return -1


def _covered(events: Events, rows: Mask, thread: int) -> int:
    """Time in which at least one of the rows runs on a thread, ns."""
    mine = rows & (events.thread == thread)
    return total(union(events.start_ns[mine], events.end_ns[mine]))


def _source(text: str) -> StepSource:
    sources: tuple[StepSource, ...] = ("user", "loader", "optimizer", "backward")
    return next((one for one in sources if one == text), "window")

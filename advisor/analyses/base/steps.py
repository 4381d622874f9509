"""The iterations of the training loop inside a trace, and the window that every share refers to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from advisor.analyses.base.cadence import Cadence, cadence
from advisor.analyses.base.launched import Launched
from advisor.analyses.base.lost_records import with_lost_work
from advisor.analyses.base.odd_steps import longest_of_few, odd_steps, period, slowed
from advisor.analyses.base.repetition import repeated_steps
from advisor.analyses.base.startup import Startup
from advisor.analyses.base.step_ranges import marked_by_ranges
from advisor.analyses.base.step_rows import StepRows, marked_by_closures, marked_by_optimizer, marked_by_profiler
from advisor.capture.record import RankRecord, StepTimes
from advisor.computed import Missing
from advisor.constants import constant
from advisor.model import StepSource
from advisor.trace.events import DEVICE_WORK, Category, Events, Floats, Ints, Mask, Numbers, Trace
from advisor.trace.intervals import EMPTY, Intervals, subtract, total, union
from advisor.trace.numbers import narrowed
from advisor.trace.op_names import AUTOGRAD_NODE

_STALL = constant("profiler.stall").value
# Steps of a window and un-profiled steps that tell; of the first one in so many may be a stall.
_FEW, _FEW_UNPROFILED = 5, 20


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Complete steps (the `ProfilerStep#N` events of the CPU), the windows that they span, and the step time.

    spans        (n, 2) start and end of each step on the host, ns, in order; without start-up
    labels       the name of each step
    recorded     from the start of the first step to the end of the last; steps further apart than a median step
                 belong to separate windows, and this is their union. Without steps: from the start of the first CPU op
                 or device work to the end of the last, as one step. Host work belongs to a step by its start in here
    window       W, to which shares refer: `recorded`, unless the device lags so far behind the host that this does not
                 show its work in a step (`Cadence.window`); then the time of the work that the steps launched
    step_us      mean time of a step, µs: the sum of the breakdown. The larger of the host's, |recorded| / n, and the
                 device's, the mean distance between the ends of the last work that consecutive steps launched; the
                 latter if the host is ahead
    host_us, device_us   these two; device_us None if steps launch no work, or if there is a single step
    is_ahead     the host issues steps faster than the device completes them: device_us is larger by 5 %, and at least
                 that much of a step is left to do when the step events end
    source       how steps were detected: user | loader | optimizer | repetition | window; in a window without marked
                 steps, optimizer steps that compute the loss in a closure are steps; in a trace that capture did not
                 record, all optimizer steps, else the sequence of ops that the loop's thread repeats
    count        number of steps, at least 1
    eval_count   segments without a backward pass, counted by capture; excluded from training figures
    cut_off      whether a last `ProfilerStep` event without an op or call in it was excluded
    main_thread  index into `events.threads` of the thread that runs the loop
    profiled_us  duration of each step, µs: of its event, or if the device is slower, between the ends of its work
    startup      what was excluded as start-up, and whether steps without it remain
    stalls_us    profiled steps that were excluded because no step takes that long without the profiler, or, in a trace
                 that capture did not record, because they are longer and not like the others (odd_steps); µs each
    stalled      (n, 2) start and end of each of them on the host, ns
    odd          index of a step that is in all shares though it is longer and not like the others: of less than five
                 steps, or of one rank of several, nobody can say that it is unusual; None in a run that capture timed
    lost         steps that were excluded because records of their work on the device are not in the trace
    starts_ns    starts of all events of the trace, for which `step_of` caches its result
    """

    spans: Intervals
    labels: tuple[str, ...]
    recorded: Intervals
    window: Intervals
    step_us: float
    source: StepSource
    count: int
    eval_count: int
    main_thread: int
    profiled_us: tuple[float, ...]
    host_us: float = 0.0
    device_us: float | None = None
    is_ahead: bool = False
    cut_off: bool = False
    startup: Startup = field(default_factory=Startup)
    stalls_us: tuple[float, ...] = ()
    stalled: Intervals = field(default_factory=lambda: EMPTY, repr=False)
    odd: int | None = None
    lost: int = 0
    starts_ns: Ints | None = field(default=None, repr=False)
    _of_starts: list[Numbers] = field(default_factory=list, init=False, repr=False)

    @property
    def usual_us(self) -> tuple[float, float | None]:
        """(host, device): the medians of what host_us and device_us are means of.

        A first step whose launches never waited, or one that was delayed, is not typical.
        """
        host = float(np.median(self.spans[:, 1] - self.spans[:, 0])) / 1e3
        return host, float(np.median(self.profiled_us)) if self.is_ahead else self.device_us

    @property
    def window_ns(self) -> int:
        """|W| in ns."""
        return total(self.window)

    @property
    def median_index(self) -> int:
        """The step whose duration on the host is the (lower) median: the one to draw."""
        order = np.argsort(self.spans[:, 1] - self.spans[:, 0], kind="stable")
        return int(order[(len(order) - 1) // 2])

    def per_step_us(self, ns: float) -> float:
        """A total over all steps in ns, as µs per step."""
        return ns / self.count / 1e3

    @property
    def of_window(self) -> float:
        """The length of W in steps; `count` if neither the host nor the device is ahead."""
        return self.window_ns / 1e3 / self.step_us

    def of_window_us(self, ns: float) -> float:
        """A length in ns of a part of W, as µs per step."""
        return ns / self.of_window / 1e3

    def kept(self, times_us: Sequence[float]) -> Floats:
        """Of a time for each profiled step, or for a part of each, those of these steps: all but the stalled ones.

        Of times of other steps all.
        """
        times = np.asarray(times_us, float)
        if len(times) != len(self.spans) + len(self.stalled):
            return times
        every = np.sort(np.concatenate((self.spans[:, 0], self.stalled[:, 0])))
        found: Floats = times[np.searchsorted(every, self.spans[:, 0])]
        return found

    def step_of(self, time_ns: Ints) -> Numbers:
        """The step that each instant belongs to; time between two steps of a window counts for the earlier; else -1."""
        if time_ns is not self.starts_ns:
            return self._step_of(time_ns)
        if not self._of_starts:
            self._of_starts.append(self._step_of(time_ns))
            self._of_starts[0].setflags(write=False)
        return self._of_starts[0]

    def _step_of(self, time_ns: Ints) -> Numbers:
        edges = np.concatenate((self.spans[:, 0], self.recorded.ravel()))
        if len(time_ns) <= len(edges) or (time_ns[1:] < time_ns[:-1]).any():
            return self._looked_up(time_ns)
        # Columns of events are in order of time: between two edges all belong to one step.
        first = np.unique(np.append(np.searchsorted(time_ns, edges, side="left"), 0))
        first = first[first < len(time_ns)]
        return np.repeat(self._looked_up(time_ns[first]), np.diff(first, append=len(time_ns)))

    def _looked_up(self, time_ns: Ints) -> Numbers:
        index = np.searchsorted(self.spans[:, 0], time_ns, side="right") - 1
        window = np.searchsorted(self.recorded[:, 0], time_ns, side="right") - 1
        inside = (window >= 0) & (time_ns < self.recorded[np.maximum(window, 0), 1])
        return narrowed(np.where(inside, index, -1))

    @classmethod
    def compute(cls, trace: Trace, record: RankRecord | None, launched: Launched | None) -> Steps:
        """Steps of a trace. Raises Missing for a trace without CPU ops and device work.

        launched: without it, neither start-up nor the device's step time is determined.
        """
        recorded = record.steps if record else StepTimes()
        # The rows are the user's own prof.step() on a bare trace; capture knows what made it step.
        marks = marked_by_profiler(trace)
        if marks and record:
            marks = replace(marks, source=_source(recorded.source))
        if marks is None:
            # Capture marks all steps but these; of a trace that it did not record all optimizer steps count.
            marks = marked_by_closures(trace.events)
            if marks is None and not record:
                marks = marked_by_ranges(trace) or marked_by_optimizer(trace.events)
        if marks is None:
            thread = _busiest_thread(trace)
            spans = None if record or launched is None else repeated_steps(trace, thread)
            if spans is None:
                marks = StepRows(_whole(trace), ("window",), "window", thread)
            else:
                labels = tuple(f"repetition {number}" for number in range(1, len(spans) + 1))
                marks = StepRows(spans, labels, "repetition", thread)
        return _measured(trace, marks, launched, record)


def _measured(trace: Trace, marks: StepRows, launched: Launched | None, record: RankRecord | None) -> Steps:
    """The steps with what they take, without start-up and stalls. record: None in a trace of others.

    Capture let its own steps warm up.
    """
    spans, labels, startup, pace = _warm(trace, marks, launched, record)
    stalls_us: tuple[float, ...] = ()
    stalled = EMPTY
    # Ranks of a job are compared step by step, so there all steps stay.
    if record is not None and record.world_size == 1 and pace is None:
        kept = _undisturbed(spans, record)
        stalls_us = tuple(float(us) for us in (spans[~kept, 1] - spans[~kept, 0]) / 1e3)
        stalled = spans[~kept]
        spans, labels = spans[kept], tuple(label for label, keep in zip(labels, kept, strict=True) if keep)
    recorded, lengths = _windows(spans), _lengths_ns(spans, pace)
    alone = _is_alone(trace, marks, record)
    lost, odd, kept = _told_by_length(trace, launched, spans, lengths, alone=alone)
    if not kept.all():
        stalls_us = tuple((lengths[odd & ~lost] / 1e3).tolist())
        stalled = spans[odd & ~lost]
        following = np.append(spans[1:, 0], spans[-1, 1])
        recorded = subtract(recorded, union(spans[~kept, 0], following[~kept]))
        spans, labels = spans[kept], tuple(np.array(labels)[kept].tolist())
        pace = replace(pace, kept=kept) if pace is not None else None
    count, host_us = len(spans), total(recorded) / len(spans) / 1e3
    device_us = pace.step_ns / 1e3 if pace is not None and (count > 1 or marks.source != "window") else None
    steps = Steps(
        spans=spans,
        labels=labels,
        recorded=recorded,
        window=recorded if pace is None else pace.window(recorded, trace.busy),
        step_us=host_us,
        source=marks.source,
        count=count,
        eval_count=record.steps.eval_count if record is not None else 0,
        main_thread=marks.thread,
        profiled_us=tuple(float(us) for us in (spans[:, 1] - spans[:, 0]) / 1e3),
        host_us=host_us,
        device_us=device_us,
        cut_off=marks.cut_off,
        startup=startup,
        stalls_us=stalls_us,
        stalled=stalled,
        odd=longest_of_few(trace, spans, lengths[kept]) if record is None and trace.device_work.any() else None,
        lost=int(lost.sum()),
        starts_ns=trace.events.start_ns,
    )
    if pace is None or device_us is None or not pace.is_behind(recorded, host_us * 1e3):
        return steps
    return dataclasses.replace(
        steps, is_ahead=True, step_us=device_us, profiled_us=tuple((pace.lengths_ns / 1e3).tolist())
    )


def _told_by_length(
    trace: Trace, launched: Launched | None, spans: Intervals, lengths: Floats, *, alone: bool
) -> tuple[Mask, Mask, Mask]:
    """Which steps lost some of their events, which are far longer than the others, and which of the rest stay."""
    lost, odd = np.zeros(len(spans), bool), np.zeros(len(spans), bool)
    if not alone:
        return lost, odd, ~lost
    if launched is not None:
        lost = with_lost_work(trace, launched, spans)
    odd = odd_steps(trace, spans, lengths)
    kept = ~lost & ~odd
    # Shares are of whole periods, as the step time is.
    at = np.flatnonzero(kept)
    kept[at[: len(at) % (period(lengths[at]) or 1)]] = False
    return lost, odd, kept


def _undisturbed(spans: Intervals, record: RankRecord) -> Mask:
    """The steps that nothing held up, and that the profiler's own memory did not slow."""
    kept: Mask = ~_stalls(spans, record.steps)
    unlike = slowed(record)
    if len(unlike) == len(spans):
        kept &= ~unlike
    return kept


def _warm(
    trace: Trace, marks: StepRows, launched: Launched | None, record: RankRecord | None
) -> tuple[Intervals, tuple[str, ...], Startup, Cadence | None]:
    """Spans and labels of the steps after start-up, that start-up, and the pace of the device in them."""
    spans, labels, startup, pace = marks.spans, marks.labels, Startup(), None
    if launched is not None:
        pace = _pace(trace, launched, spans)
        if record is None or pace is not None:
            lengths, number = _lengths_ns(spans, pace), _number(labels[0])
            startup = Startup.of(trace, launched, spans, lengths, number=number)
    if startup.steps:
        spans, labels = spans[startup.steps :], labels[startup.steps :]
        pace = _pace(trace, launched, spans) if launched is not None else None
    rest = startup.cut_off(spans) if marks.source == "window" else None
    if rest is not None:
        spans, startup = rest, replace(startup, steady=True)
    return spans, labels, startup, pace


def _stalls(spans: Intervals, captured: StepTimes) -> Mask:
    """Steps that something held up which is not the script's: far longer than any step without the profiler.

    Lengths are compared as multiples of the median, as the profiler makes all steps longer. Of few steps, or where many
    are such, nothing can be told.
    """
    lengths, none = spans[:, 1] - spans[:, 0], np.zeros(len(spans), bool)
    if len(spans) < _FEW or len(captured.unprofiled_us) < _FEW_UNPROFILED:
        return none
    most = max(captured.unprofiled_us) / float(np.median(captured.unprofiled_us))
    found: Mask = lengths > _STALL * most * np.median(lengths)
    return found if found.sum() * _FEW <= len(spans) else none


def _is_alone(trace: Trace, marks: StepRows, record: RankRecord | None) -> bool:
    """Whether one far longer step of a trace that capture did not record is told from others by its length.

    Ranks of a job are compared step by step. Without a device, other work of the machine makes steps differ.
    """
    one_rank = record is None and (trace.meta.world_size or 1) == 1
    return one_rank and marks.source != "window" and bool(trace.device_work.any())


def _number(label: str) -> int:
    """The number in the name of a step, 0 where it has none."""
    digits = label.rpartition("#")[2]
    return int(digits) if digits.isdecimal() else 0


def _pace(trace: Trace, launched: Launched, spans: Intervals) -> Cadence | None:
    """The device's steps; between two windows the profiler was off, so several have none."""
    return cadence(trace, launched, spans) if len(_windows(spans)) == 1 else None


def _lengths_ns(spans: Intervals, pace: Cadence | None) -> Floats:
    """What each step takes: on the host, or on the device where that is longer."""
    on_host = (spans[:, 1] - spans[:, 0]).astype(float)
    return on_host if pace is None else np.maximum(on_host, pace.lengths_ns)


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
        raise Missing("the trace has neither CPU ops nor device work; record again while training runs")
    return union([start.min()], [end.max()])


def _busiest_thread(trace: Trace) -> int:
    """Without steps: the thread that fetched or stepped an optimizer, else that which is longest in CPU ops."""
    events = trace.events
    for used in (
        events.of(Category.ANNOTATION) & events.named("enumerate(DataLoader)#", "Optimizer.step#"),
        events.of(Category.CPU_OP) & ~events.named(AUTOGRAD_NODE),
        events.of(Category.PYTHON, Category.RUNTIME),
    ):
        if used.any():
            covered = {int(thread): _covered(events, used, thread) for thread in np.unique(events.thread[used])}
            return max(covered, key=covered.__getitem__)
    return -1


def _covered(events: Events, rows: Mask, thread: int) -> int:
    """Time in which at least one of the rows runs on a thread, ns."""
    mine = rows & (events.thread == thread)
    return total(events.covered(mine))


def _source(text: str) -> StepSource:
    sources: tuple[StepSource, ...] = ("user", "loader", "optimizer", "backward")
    return next((one for one in sources if one == text), "window")

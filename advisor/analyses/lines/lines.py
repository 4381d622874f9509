"""Which line of the user's code ran."""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from advisor.analyses.base.nesting import nearest, parents
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.frame_tree import FrameTree
from advisor.analyses.lines.frames import Owner, enclosing, frame_rows, innermost, parse
from advisor.analyses.lines.line_records import line_spans
from advisor.model import Source
from advisor.trace.events import Category, Events, Ints, Mask, Numbers, Trace
from advisor.trace.intervals import Intervals, intersect, total
from advisor.trace.numbers import distinct
from advisor.trace.op_names import AUTOGRAD_NODE

_NO_LINES = (
    "neither lines nor Python stacks are in this trace; `advisor run` records lines in a step after the profiled ones"
)


class LinesTrace(Struct, frozen=True):
    """The second trace of a capture: slower, and used only for lines (`advisor:line|file|line|function` events)."""

    trace: Trace


class LineTime(Struct, frozen=True):
    """Time that one place of the user's code took: µs and visits per step."""

    source: Source
    us: float
    calls: float


def _no_spans() -> Intervals:
    return np.empty((0, 2), np.int64)


def _no_rows() -> Ints:
    return np.empty(0, np.int64)


def _no_mask() -> Mask:
    return np.empty(0, bool)


class Lines(Struct, frozen=True, eq=False):
    """Finds which user code ran an event or a span of the loop's thread.

    Sources, best first: the lines trace, aligned with the profiled steps by the order of ops; Python
    frames of the trace; `Call stack` arguments of its ops. Frames name a function's first line (precision "function").

    available   whether any source of lines exists;  why: else why not
    sources     the places that occur
    op_source   for each event the index of its place, -1 if unknown; for autograd's threads the line that called it
    spans, span_source   the innermost place at each instant of the loop's thread, if known; in order, disjoint
    entered     for each span whether its line starts with it, else it continues after a call; empty if not known
    callers     for each place the place that called it for most of its time, -1 if none; empty if not known
    stacks, span_stack  stacks of places, the innermost first; for each span its stack; empty likewise
    """

    available: bool
    why: str = ""
    steps_count: int = 1
    sources: tuple[Source, ...] = ()
    op_source: Numbers = field(default_factory=_no_rows)
    spans: Intervals = field(default_factory=_no_spans)
    span_source: Ints = field(default_factory=_no_rows)
    frames: FrameTree | None = None
    entered: Mask = field(default_factory=_no_mask)
    callers: Ints = field(default_factory=_no_rows)
    stacks: tuple[tuple[int, ...], ...] = ()
    span_stack: Ints = field(default_factory=_no_rows)

    def where_op(self, row: int) -> Source | None:
        """The user's line that ran this event, None if not known."""
        index = int(self.op_source[row]) if 0 <= row < len(self.op_source) else -1
        return self.sources[index] if index >= 0 else None

    def where_span(self, start_ns: int, end_ns: int) -> Source | None:
        """The user's line that ran for most of a span of the loop's thread, None if not known.

        Of nested Python frames it is the innermost function of the user's whose calls cover nearly all of the span.
        """
        return self.what_ran(start_ns, end_ns)[0]

    @property
    def holders(self) -> frozenset[Source]:
        """Lines on every stack: each calls what runs the loop. Of a script that runs its loop itself, what called that.

        Time of such a line itself is that of a library's loop, as of `trainer.fit(model, loader)`.
        """
        seen = [set(self.stacks[at]) for at in distinct(self.span_stack, len(self.stacks)).tolist()]
        return frozenset(self.sources[at] for at in (set.intersection(*seen) if seen else set()))

    def what_ran(self, start_ns: int, end_ns: int) -> tuple[Source | None, str]:
        """The same, and the name of what ran: that function, or what it calls of a library; "" if not known."""
        if self.frames is not None and (found := self.frames.covering(start_ns, end_ns)) is not None:
            return found
        hot = self.hot(np.array([[start_ns, end_ns]], np.int64), 1)
        mostly = hot and hot[0].us * self.steps_count * 2e3 >= end_ns - start_ns
        return (hot[0].source, hot[0].source.function or "") if mostly else (None, "")

    def hot(self, intervals: Intervals, n: int = 5) -> tuple[LineTime, ...]:
        """The lines that ran for most of the given time on the loop's thread; empty if lines are not known."""
        if not len(self.spans) or not len(intervals):
            return ()
        # Each span cut by the intervals; a line is visited once for each of its spans that is met.
        pieces = intersect(self.spans, intervals)
        span = np.searchsorted(self.spans[:, 0], pieces[:, 0], side="right") - 1
        who = self.span_source[span]
        ns = np.bincount(who, weights=pieces[:, 1] - pieces[:, 0], minlength=len(self.sources))
        visits = np.bincount(self.span_source[distinct(span, len(self.spans))], minlength=len(self.sources))
        order = np.lexsort((np.arange(len(ns)), -ns))[:n]
        per = self.steps_count
        return tuple(
            LineTime(self.sources[i], float(ns[i]) / per / 1e3, float(visits[i]) / per) for i in order if ns[i]
        )

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, recorded: LinesTrace | None) -> Lines:
        """Lines of this rank; never Missing."""
        events = trace.events
        if recorded is not None:
            known = line_spans(trace, steps, recorded.trace)
            if len(known.spans):
                middle = events.start_ns + events.dur_ns // 2
                rows = _at(known.spans, known.who, middle).astype(np.int32, copy=False)
                rows[(events.thread != steps.main_thread) & ~_on_engine_threads(events)] = -1
                at = (known.spans, known.who, None, known.entered, known.callers, known.stacks, known.stack_of)
                return cls(True, "", steps.count, known.sources, rows, *at)
        if events.of(Category.PYTHON).any():
            return _from_frames(events, steps)
        if (events.stack >= 0).any():
            return _from_stacks(events, steps)
        return cls(False, _NO_LINES)


def _on_engine_threads(events: Events) -> Mask:
    """Rows of threads on which autograd runs: meanwhile the loop's thread stands in the line that called it."""
    nodes = events.named(AUTOGRAD_NODE)
    engine = np.zeros(len(events.threads), bool)
    engine[events.thread[nodes]] = True
    return engine[events.thread]


def _at(spans: Intervals, who: Ints, time_ns: Ints) -> Ints:
    """The index that belongs to the span around each instant, -1 outside all spans."""
    if not len(spans):
        return np.full(len(time_ns), -1, np.int64)
    index = np.searchsorted(spans[:, 0], time_ns, side="right") - 1
    inside = (index >= 0) & (time_ns < spans[np.maximum(index, 0), 1])
    return np.where(inside, who[np.maximum(index, 0)], -1)


def _from_frames(events: Events, steps: Steps) -> Lines:
    rows, frames = frame_rows(events, steps.main_thread)
    if not rows.any():
        return Lines(False, "the Python stacks of this trace hold no frame of the user's code on the loop's thread")
    parent = parents(events, rows)
    spans, who = innermost(events, rows, parent)
    sources = tuple(dict.fromkeys(source for source, _ in frames.values()))
    index = {source: i for i, source in enumerate(sources)}
    by_name = np.full(len(events.names), -1, np.int64)
    for name, (source, _) in frames.items():
        by_name[name] = index[source]
    step_ns = total(steps.recorded) / steps.count
    tree = FrameTree(spans, who, parent, events.start_ns, events.end_ns, events.name, frames, step_ns)
    on_loop = (events.thread == steps.main_thread) & events.of(Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME)
    # An op belongs to the user's own frame if there is one around it, else to the library's.
    of_user = np.zeros(len(events.names), bool)
    of_user[[n for n, (_, whose) in frames.items() if whose == Owner.USER]] = True
    own = rows & of_user[events.name]
    around = enclosing(events, rows, on_loop)
    if not np.array_equal(own, rows):
        around_own = enclosing(events, own, on_loop)
        around = np.where(around_own >= 0, around_own, around)
    known = np.flatnonzero(around >= 0)
    op_source = np.full(len(events), -1, np.int32)
    op_source[known] = by_name[events.name[around[known]]]
    span_source = by_name[events.name[who]]
    engine = np.flatnonzero(_on_engine_threads(events) & (events.thread != steps.main_thread))
    op_source[engine] = _at(spans, span_source, events.start_ns[engine] + events.dur_ns[engine] // 2)
    return Lines(True, "", steps.count, sources, op_source, spans, span_source, tree)


def _from_stacks(events: Events, steps: Steps) -> Lines:
    """`Call stack` arguments, innermost frame first, of ops on any thread."""
    found = [_user_frame(stack) for stack in events.stack_table]
    if _lines_of_calls(events.stack_table):
        found = [replace(source, precision="call") if source else None for source in found]
    sources = tuple(dict.fromkeys(source for source in found if source is not None))
    index = {source: i for i, source in enumerate(sources)}
    by_stack = np.array([-1 if source is None else index[source] for source in found], np.int32)
    op_source = np.where(events.stack >= 0, by_stack[np.maximum(events.stack, 0)], -1)
    inherited = nearest(
        parents(events, events.of(Category.CPU_OP, Category.ANNOTATION, Category.RUNTIME)), op_source >= 0
    )
    op_source = np.where(inherited >= 0, op_source[np.maximum(inherited, 0)], -1)
    return Lines(bool(sources), "" if sources else _NO_LINES, steps.count, sources, op_source)


def _user_frame(stack: str) -> Source | None:
    """The innermost frame of the user's code in a call stack, else of a library."""
    parsed = [frame for text in stack.split(";") if (frame := parse(text)) is not None]
    for wanted in (Owner.USER, Owner.LIBRARY):
        for source, whose in parsed:
            if whose == wanted:
                return source
    return None


def _lines_of_calls(stacks: tuple[str, ...]) -> bool:
    """Whether the numbers are lines of calls, as in torch 1.8 and 1.9, and not the first line of each function."""
    lines: dict[tuple[str, str], set[int]] = {}
    for text in {text for stack in stacks for text in stack.split(";")}:
        if (frame := parse(text)) is not None:
            lines.setdefault((frame[0].file, frame[0].function), set()).add(frame[0].line)
    return any(len(numbers) > 1 for (_, function), numbers in lines.items() if function == "<module>")

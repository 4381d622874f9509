"""A stretch of one recorded step found again in the steps of another trace, by the names of its ops in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from advisor.analyses.base.nesting import parents
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.intervals import Intervals

# What only one of two traces of the same loop holds: rows of capture, and what its look at a tensor's numbers leaves.
_OURS = ("advisor:", "ProfilerStep#", "aten::resolve_conj", "aten::resolve_neg")
# Op names become characters of a text, so that a run of them is found as a word is; these code points, and all above
# them, are free of surrogates.
_FIRST_CHARACTER = 0xE000


@dataclass(frozen=True, slots=True, eq=False)
class StepOps:
    """The ops of one step on the loop's thread, in order of start.

    span    start and end of the step, ns
    text    one character for the name of each op
    times   start and end of each op
    edges   when an op or an annotation starts or ends, in order;  labels: what does
    """

    span: Ints
    text: str
    times: Intervals
    edges: Ints
    labels: Ints
    _places: dict[str, list[int]] = field(default_factory=dict, init=False, repr=False)

    def places(self, word: str) -> list[int]:
        """Where these names follow each other: the index of the first op of each occurrence."""
        if word not in self._places:
            self._places[word] = list(_places(self.text, word))
        return self._places[word]

    def edges_between(self, start_ns: int, end_ns: int) -> tuple[Ints, Ints]:
        """Edges within [start, end], and the one on either side (or an end of the step): what they are, and when."""
        low = int(np.searchsorted(self.edges, start_ns, side="left")) - 1
        high = int(np.searchsorted(self.edges, end_ns, side="right")) + 1
        labels = np.concatenate(([-1], self.labels, [-1]))[low + 1 : high + 1]
        return labels, np.concatenate((self.span[:1], self.edges, self.span[1:]))[low + 1 : high + 1]


def ops_of_steps(
    trace: Trace, thread: int, spans: Intervals, codes: dict[str, int], *, outermost: bool
) -> list[StepOps]:
    """The ops of each step. codes: a number for each name, shared by the traces; outermost: ops inside no other op."""
    events = trace.events
    code = np.array([codes.setdefault(name, len(codes)) for name in events.names], np.int64)
    ours = np.array([name.startswith(_OURS) for name in events.names], bool)
    mine = (events.thread == thread) & ~events.rows_with(ours)
    ops = mine & events.of(Category.CPU_OP)
    if outermost:
        ops &= parents(events, ops) < 0
    marks = mine & events.of(Category.CPU_OP, Category.ANNOTATION)
    of_ops, of_marks = np.flatnonzero(ops), np.flatnonzero(marks)
    return [
        _of_step(events, code, _within(events, of_ops, span), _within(events, of_marks, span), span) for span in spans
    ]


def _within(events: Events, rows: Ints, span: Ints) -> Ints:
    """Those of some rows, in order of start, that lie in a span."""
    low, high = np.searchsorted(events.start_ns[rows], span)
    inside: Ints = rows[low:high][events.end_ns[rows[low:high]] <= span[1]]
    return inside


def _of_step(events: Events, code: Ints, ops: Ints, marks: Ints, span: Ints) -> StepOps:
    edges = np.concatenate((events.start_ns[marks], events.end_ns[marks]))
    order = np.argsort(edges, kind="stable")
    label = 2 * code[events.name[marks]]
    characters = (code[events.name[ops]] + _FIRST_CHARACTER).astype("<u4")
    return StepOps(
        span=span,
        text=characters.tobytes().decode("utf-32-le"),
        times=np.column_stack((events.start_ns[ops], events.end_ns[ops])),
        edges=edges[order],
        labels=np.concatenate((label, label + 1))[order],
    )


def _places(text: str, word: str) -> Iterator[int]:
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + 1)


def placed(spans: Intervals, stretches: Intervals, recorded: StepOps, step: StepOps) -> tuple[Intervals, Mask] | None:
    """Spans of the recorded step on the clock of another step, and which of them have a place there.

    stretches: parts of the recorded step, in order, each of which has to occur there: the k-th time in one as in the
    other. None where one of them does not. Between two edges of ops time runs evenly; spans in a stretch without an op
    have no place.
    """
    x, y = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    known = np.zeros(len(spans), bool)
    for start, end in stretches.tolist():
        low, high = np.searchsorted(recorded.times[:, 0], (start, end)).tolist()
        if low == high:
            continue
        at = _same(recorded, step, low, high)
        if at is None:
            return None
        theirs, ours = recorded.times[low:high], step.times[at : at + high - low]
        for pairs in (
            _lead(recorded, start, int(theirs[0, 0]), step, int(ours[0, 0])),
            _trail(recorded, end, int(theirs[:, 1].max()), step, int(ours[:, 1].max())),
        ):
            x.append(pairs[0])
            y.append(pairs[1])
        x.append(theirs.ravel())
        y.append(ours.ravel())
        known |= (spans[:, 0] >= start) & (spans[:, 1] <= end)
    if not known.any():
        return None
    return _warped(spans, np.concatenate(x), np.concatenate(y)), known


def _same(recorded: StepOps, step: StepOps, low: int, high: int) -> int | None:
    """Where a step has the ops low to high of the recorded one; None where it does not have them as often."""
    if recorded.text == step.text:
        return low
    word = recorded.text[low:high]
    here, there = recorded.places(word), step.places(word)
    return there[here.index(low)] if len(here) == len(there) else None


def _lead(recorded: StepOps, start: int, first: int, step: StepOps, place: int) -> tuple[Ints, Ints]:
    """Edges from before a stretch up to its first op, in both steps, where they are the same in both.

    Where only those within the stretch are, or none, the stretch begins with the first of these, or with the op.
    """
    labels, times = recorded.edges_between(start, first)
    labels, times = labels[times <= first], times[times <= first]
    at = int(np.searchsorted(step.edges, place, side="right"))
    theirs = np.concatenate(([-1], step.labels[:at]))
    dates = np.concatenate((step.span[:1], step.edges[:at]))
    for count in (len(labels), int((times >= start).sum())):
        if 0 < count <= len(theirs) and np.array_equal(labels[-count:], theirs[-count:]):
            x, y = times[-count:], dates[-count:]
            return (x, y) if x[0] <= start else (np.append(start, x), np.append(y[0], y))
    return np.array([start]), np.array([place])


def _trail(recorded: StepOps, end: int, last: int, step: StepOps, place: int) -> tuple[Ints, Ints]:
    """The same from the last op of a stretch to what comes after it."""
    labels, times = recorded.edges_between(last, end)
    labels, times = labels[times >= last], times[times >= last]
    at = int(np.searchsorted(step.edges, place, side="left"))
    theirs = np.append(step.labels[at:], -1)
    dates = np.append(step.edges[at:], step.span[1])
    for count in (len(labels), int((times <= end).sum())):
        if 0 < count <= len(theirs) and np.array_equal(labels[:count], theirs[:count]):
            x, y = times[:count], dates[:count]
            return (x, y) if x[-1] >= end else (np.append(x, end), np.append(y, y[-1]))
    return np.array([end]), np.array([place])


def _warped(spans: Intervals, x: Ints, y: Ints) -> Intervals:
    """Spans brought from the clock of x to that of y."""
    order = np.lexsort((y, x))
    x, y = x[order], np.maximum.accumulate(y[order])
    # Nanoseconds of a date are too large for floating point; their differences are not.
    return (np.interp(spans - x[0], x - x[0], (y - y[0]).astype(float)) + y[0]).astype(np.int64) if len(x) else spans

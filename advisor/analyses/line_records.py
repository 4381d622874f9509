"""The lines trace brought onto the clock of the profiled steps.

Both traces ran the same loop, so the k-th op of a name in a step of one is the k-th of that name in a step of the
other. These pairs are anchors; between two anchors time runs evenly.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from advisor.analyses.frames import innermost
from advisor.analyses.steps import Steps
from advisor.model import Source
from advisor.trace.events import Category, Events, Ids, Ints, Mask, Trace
from advisor.trace.intervals import Intervals

PREFIX = "advisor:line|"


def parse_record(name: str) -> Source | None:
    """The line that a row `advisor:line|file|line|function` tells of; None for any other name."""
    if not name.startswith(PREFIX):
        return None
    # A file name may hold the separator; the line and the function do not.
    parts = name.removeprefix(PREFIX).rsplit("|", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    return Source(parts[0], int(parts[1]), parts[2], "call")


def line_spans(trace: Trace, steps: Steps, recorded: Trace) -> tuple[Intervals, Ints, tuple[Source, ...]]:
    """When each recorded line ran, in every profiled step: (spans, index into the sources, sources)."""
    theirs = Steps.compute(recorded, None)
    events = recorded.events
    by_name = {i: source for i, name in enumerate(events.names) if (source := parse_record(name)) is not None}
    is_line = np.isin(events.name, np.fromiter(by_name, np.int64, len(by_name))) & (events.thread == theirs.main_thread)
    spans, rows = innermost(events, is_line)
    if not len(spans):
        return spans, rows, ()
    sources = tuple(dict.fromkeys(by_name.values()))
    index = {source: i for i, source in enumerate(sources)}
    who = np.array([index[by_name[int(name)]] for name in events.name[rows]], np.int64)
    # The last recorded step: the first pays for whatever is set up once.
    step = theirs.spans[-1]
    inside = (spans[:, 0] < step[1]) & (spans[:, 1] > step[0])
    spans, who = np.clip(spans[inside], *step), who[inside]
    anchors = _Anchors(events, theirs.main_thread, step)
    warped = [_warp(spans, anchors, _Anchors(trace.events, steps.main_thread, one)) for one in steps.spans]
    return np.concatenate(warped), np.tile(who, steps.count), sources


class _Anchors:
    """The ops of one step on the loop's thread: key (name and ordinal of that name) -> start and end."""

    def __init__(self, events: Events, thread: int, step: Ints) -> None:
        inside = (events.start_ns >= step[0]) & (events.end_ns <= step[1]) & (events.thread == thread)
        rows = np.flatnonzero(inside & events.of(Category.CPU_OP, Category.ANNOTATION) & _repeatable(events))
        self.step = step
        self.times = np.column_stack((events.start_ns[rows], events.end_ns[rows]))
        ordinal = _ordinals(events.name[rows])
        names = (events.names[i] for i in events.name[rows])
        self.index = {key: i for i, key in enumerate(zip(names, ordinal.tolist(), strict=True))}


def _repeatable(events: Events) -> Mask:
    """Rows that both traces hold alike: not the step's own row, not the line records."""
    good = [not name.startswith((PREFIX, "ProfilerStep#")) for name in events.names]
    return np.asarray(good, bool)[events.name] if good else np.zeros(len(events), bool)


def _ordinals(names: Ids) -> Ints:
    """For each entry how many equal ones stand before it."""
    order = np.argsort(names, kind="stable")
    ordered = names[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(names) else order
    counts = np.diff(np.append(first, len(names)))
    ordinal = np.empty(len(names), np.int64)
    ordinal[order] = np.arange(len(names)) - np.repeat(first, counts)
    return ordinal


def _longest_rise(values: Ints) -> Ints:
    """Indices of most entries that never fall.

    Time does not run backwards: where one step ran an op that the other did not (what it prints every twentieth step),
    its anchor is another op of that name, and those between would follow it to a wrong place.
    """
    if (values[1:] >= values[:-1]).all():
        return np.arange(len(values))
    lowest: list[int] = []  # by length of the rise: the lowest entry that ends one
    last: list[int] = []  # and where that stands
    before = np.full(len(values), -1, np.int64)
    for index, value in enumerate(values.tolist()):
        length = bisect_right(lowest, value)
        before[index] = last[length - 1] if length else -1
        lowest[length : length + 1] = [value]
        last[length : length + 1] = [index]
    found = [last[-1]]
    while (previous := int(before[found[-1]])) >= 0:
        found.append(previous)
    return np.array(found[::-1], np.int64)


def _warp(spans: Intervals, recorded: _Anchors, profiled: _Anchors) -> Intervals:
    """Spans of the recorded step on the clock of the profiled one."""
    pairs = [(i, profiled.index[key]) for key, i in recorded.index.items() if key in profiled.index]
    theirs, ours = np.array(pairs, np.int64).reshape(-1, 2).T
    x = np.concatenate(([recorded.step[0]], recorded.times[theirs].ravel(), [recorded.step[1]]))
    y = np.concatenate(([profiled.step[0]], profiled.times[ours].ravel(), [profiled.step[1]]))
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    forward = _longest_rise(y)
    x, y = x[forward] - recorded.step[0], y[forward] - profiled.step[0]
    warped: Intervals = (np.interp(spans - recorded.step[0], x, y) + profiled.step[0]).astype(np.int64)
    return warped

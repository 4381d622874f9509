"""The lines trace brought onto the clock of the profiled steps.

Both traces ran the same loop, so the ops of a step of one follow each other as those of a step of the other do. These
pairs are anchors; between two anchors time runs evenly. Where a step turned more often in a loop than the one whose
lines were recorded, some of what was recorded stands for several of its turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import parents
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.frames import innermost
from advisor.analyses.matching.align_ops import SameTurns
from advisor.model import Source
from advisor.trace.events import Category, Events, Ids, Ints, Mask, Trace
from advisor.trace.intervals import Intervals, overlap_of_each

PREFIX = "advisor:line|"
# So few ops are no turn of a loop: the recorded step ran something that others do not, and time runs on.
_FEW = 3


def parse_record(name: str) -> Source | None:
    """The line that a row `advisor:line|file|line|function` tells of; None for any other name."""
    if not name.startswith(PREFIX):
        return None
    # A file name may hold the separator; the line and the function do not.
    parts = name.removeprefix(PREFIX).rsplit("|", 2)
    if len(parts) != 3 or not parts[1].isdigit():
        return None
    return Source(parts[0], int(parts[1]), parts[2], "call")


class LineSpans(Struct, frozen=True, eq=False):
    """When each recorded line ran, in every profiled step.

    spans, who  the innermost line at each instant, and the index of it in `sources`
    entered     whether the line began with that span: else it goes on after a call
    callers     for each of the sources the one whose line called its function for most of its time; -1 where not known
    stacks, stack_of  lines that called each other, as indices of sources, the innermost first; of each span the stack
    """

    spans: Intervals
    who: Ints
    sources: tuple[Source, ...]
    entered: Mask
    callers: Ints
    stacks: tuple[tuple[int, ...], ...]
    stack_of: Ints


def line_spans(trace: Trace, steps: Steps, recorded: Trace) -> LineSpans:
    """The recorded step that is most like each profiled one. Without records there are no spans.

    Of equals it is the last: the first pays for whatever is set up once. Of a loop that validates every tenth step an
    ordinary step and one with a validation are recorded.
    """
    theirs = Steps.compute(recorded, None, None)
    events = recorded.events
    by_name = {i: source for i, name in enumerate(events.names) if (source := parse_record(name)) is not None}
    is_line = np.isin(events.name, np.fromiter(by_name, np.int64, len(by_name))) & (events.thread == theirs.main_thread)
    above = parents(events, is_line)
    spans, rows = innermost(events, is_line, above)
    if not len(spans):
        return LineSpans(spans, rows, (), np.zeros(0, bool), rows, (), rows)
    sources = tuple(dict.fromkeys(by_name.values()))
    index = {source: i for i, source in enumerate(sources)}
    of_name = np.full(len(events.names), -1, np.int64)
    of_name[list(by_name)] = [index[source] for source in by_name.values()]
    function = np.unique([f"{source.file}|{source.function}" for source in sources], return_inverse=True)[1]
    rows = _between_lines(rows, above, of_name[events.name], function)
    who, around = of_name[events.name[rows]], above[rows]
    called_by = np.where(around >= 0, of_name[events.name[np.maximum(around, 0)]], -1)
    stacks, stack_of = _stacks(rows, above, of_name[events.name])
    takes = [_Take.of(events, theirs.main_thread, step, spans, (rows, above, stack_of)) for step in theirs.spans]
    same = [SameTurns(take.anchors.names) for take in takes]
    warped, whose, entered = [], [], []  # of whose: the stacks
    for one in steps.spans:
        ours = _Anchors.of(trace.events, steps.main_thread, one)
        best = max(reversed(range(len(takes))), key=lambda at: takes[at].anchors.likeness(ours))
        take = takes[best]
        for run in _runs(take.anchors, ours, same[best].of(ours.names)):
            spans_there, which = _warp(take.spans, run)
            warped.append(spans_there)
            whose.append(take.stack[which])
            entered.append(take.entered[which] & (take.spans[which, 0] >= run.recorded[0]))
    inside = overlap_of_each(spans[:, 0], spans[:, 1], theirs.spans) > 0
    callers = _mostly(who[inside], called_by[inside], (spans[:, 1] - spans[:, 0])[inside], len(sources))
    stack = np.concatenate(whose)
    inner = np.array([one[0] for one in stacks], np.int64)[stack]
    return LineSpans(np.concatenate(warped), inner, sources, np.concatenate(entered), callers, stacks, stack)


def _stacks(rows: Ints, above: Ints, source: Ints) -> tuple[tuple[tuple[int, ...], ...], Ints]:
    """The different stacks of lines around these rows, and for each row which it has. source: of each row."""
    known: dict[tuple[int, ...], int] = {}
    of_row: dict[int, int] = {}
    for row in np.unique(rows).tolist():
        at, found = row, []
        while at >= 0:
            found.append(int(source[at]))
            at = int(above[at])
        of_row[row] = known.setdefault(tuple(found), len(known))
    return tuple(known), np.array([of_row[row] for row in rows.tolist()], np.int64)


def _between_lines(rows: Ints, above: Ints, source: Ints, function: Ints) -> Ints:
    """The rows of the spans, with what lies between two lines of one call given to the first of them.

    Recording takes time between the end of a line and the start of the next; that is no time of the line that called
    the function. A line that the function begins with may begin another call: before it the caller may have worked.
    above: the row around each row; source: of each row; function: of each source.
    """
    found = rows.copy()
    if len(rows) < 3:
        return found
    before, here, after = rows[:-2], rows[1:-1], rows[2:]
    made = function[source[rows]]
    # The first line of each function within each row that called it.
    calls = np.column_stack((above[rows], made))
    _, first, of_call = np.unique(calls, axis=0, return_index=True, return_inverse=True)
    begins = source[rows[first[of_call.ravel()]]] == source[rows]
    inside = (above[before] == here) & (above[after] == here) & (made[:-2] == made[2:]) & ~begins[2:]
    found[1:-1][inside] = before[inside]
    return found


def _mostly(who: Ints, called_by: Ints, ns: Ints, count: int) -> Ints:
    """For each of `count` the caller that has more than half of its time, -1 where none has."""
    pairs, at = np.unique(np.column_stack((who, called_by)), axis=0, return_inverse=True)
    spent = np.bincount(at.ravel(), weights=ns)
    whole = np.bincount(who, weights=ns, minlength=count)
    most = (pairs[:, 1] >= 0) & (2 * spent > whole[pairs[:, 0]])
    found = np.full(count, -1, np.int64)
    found[pairs[most, 0]] = pairs[most, 1]
    return found


class _Take(Struct, frozen=True, eq=False):
    """One recorded step: its spans with the stacks that ran in them, which of their lines began there; its ops."""

    spans: Intervals
    stack: Ints
    entered: Mask
    anchors: _Anchors

    @classmethod
    def of(cls, events: Events, thread: int, step: Ints, spans: Intervals, who: tuple[Ints, Ints, Ints]) -> _Take:
        """The step, of all spans. who: the row of each, the row around each event, the stack of each span."""
        inside = (spans[:, 0] < step[1]) & (spans[:, 1] > step[0])
        rows, above, stack = who[0][inside], who[1], who[2][inside]
        of_row, first = np.unique(rows, return_index=True)
        entered = np.zeros(len(rows), bool)
        entered[first] = ~_goes_on(events.name, of_row, rows[[0, -1]], above) if len(rows) else True
        return cls(np.clip(spans[inside], *step), stack, entered, _Anchors.of(events, thread, step))


def _goes_on(name: Ids, rows: Ints, ends: Ints, above: Ints) -> Mask:
    """Which of these rows are lines that a step begins in, as it ends in them: they were entered in the step before.

    ends: the rows that the step begins and ends in
    """
    first, last = (_around(int(row), above) for row in ends)
    begun = np.isin(rows, list(set(first) - set(last)))
    return begun & np.isin(name[rows], name[last])


def _around(row: int, above: Ints) -> list[int]:
    """The row and those around it."""
    found = [row]
    while (row := int(above[row])) >= 0:
        found.append(row)
    return found


class _Anchors(Struct, frozen=True, eq=False):
    """The ops of one step on the loop's thread, by start: names, and start and end of each.

    edges  of all of them, in order
    """

    step: Ints
    names: tuple[str, ...]
    times: Intervals
    edges: Ints

    @classmethod
    def of(cls, events: Events, thread: int, step: Ints) -> _Anchors:
        """Those that lie in the step."""
        inside = (events.start_ns >= step[0]) & (events.end_ns <= step[1]) & (events.thread == thread)
        rows = np.flatnonzero(inside & events.of(Category.CPU_OP, Category.ANNOTATION) & _repeatable(events))
        times = np.column_stack((events.start_ns[rows], events.end_ns[rows]))
        return cls(step, tuple(events.names[i] for i in events.name[rows]), times, np.sort(times.ravel()))

    def likeness(self, other: _Anchors) -> float:
        """The share of the ops of both steps that both have, 0 to 1; those of a name are alike."""
        mine, others = Counter(self.names), Counter(other.names)
        return (mine & others).total() / max((mine | others).total(), 1)

    def before(self, op: int) -> int:
        """When the gap in front of an op began: the last start or end of another; the end of the step behind all."""
        if op >= len(self.names):
            return int(self.step[1])
        at = int(np.searchsorted(self.edges, self.times[op, 0], side="left"))
        return int(self.edges[at - 1]) if at else int(self.step[0])


class _Run(Struct, frozen=True, eq=False):
    """A piece of a profiled step that a piece of a recorded one stands for: start and end of both, and anchors."""

    recorded: tuple[int, int]
    profiled: tuple[int, int]
    theirs: Ints
    ours: Ints


def _runs(recorded: _Anchors, profiled: _Anchors, of: Ints) -> Iterator[_Run]:
    """The pieces of a profiled step, in order: its ops as they follow each other in the recorded one.

    of: for each op of the profiled step its place in the recorded one, -1 where it has none.
    """
    known = np.flatnonzero(of >= 0)
    ahead = np.diff(of[known])
    breaks = np.flatnonzero((ahead < 1) | (ahead > _FEW)) + 1
    pieces = np.split(known, breaks)
    starts = [int(profiled.step[0]), *(profiled.before(int(piece[0])) for piece in pieces[1:]), int(profiled.step[1])]
    for at, piece in enumerate(pieces):
        first = recorded.before(int(of[piece[0]])) if at else int(recorded.step[0])
        more = at + 1 < len(pieces)
        last = recorded.before(int(of[piece[-1]]) + 1) if more else int(recorded.step[1])
        yield _Run((first, last), (starts[at], starts[at + 1]), recorded.times[of[piece]], profiled.times[piece])


def _repeatable(events: Events) -> Mask:
    """Rows that both traces hold alike: not the step's own row, not what is recorded beside lines."""
    good = [not name.startswith(("advisor:", "ProfilerStep#")) for name in events.names]
    return np.asarray(good, bool)[events.name] if good else np.zeros(len(events), bool)


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


def _warp(spans: Intervals, run: _Run) -> tuple[Intervals, Ints]:
    """The spans of the recorded piece on the clock of the profiled one, and which of the spans they are."""
    (begins, ends), (starts, stops) = run.recorded, run.profiled
    which = np.flatnonzero((spans[:, 0] < ends) & (spans[:, 1] > begins))
    inside = (run.theirs >= begins) & (run.theirs <= ends) & (run.ours >= starts) & (run.ours <= stops)
    x = np.concatenate(([begins], run.theirs[inside], [ends]))
    y = np.concatenate(([starts], run.ours[inside], [stops]))
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    forward = _longest_rise(y)
    x, y = x[forward] - begins, y[forward] - starts
    cut = np.clip(spans[which], begins, ends)
    warped: Intervals = (np.interp(cut - begins, x, y) + starts).astype(np.int64)
    return warped, which

"""Metrics that are called in training steps: the lines that call them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from advisor.analyses.base.nesting import nearest, parents
from advisor.analyses.costs.module_calls import PREFIX, parse_range
from advisor.analyses.lines.line_records import PREFIX as LINE
from advisor.analyses.lines.line_records import parse_record
from advisor.analyses.lines.lines import LinesTrace
from advisor.analyses.step.phases import backward_rows
from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Category, Events, Ints
from advisor.trace.intervals import Intervals, intersect, total, union

Rows = Ints


_NO_LINES = "no step recorded lines; use `advisor run` without --no-lines, and train on after the profiled steps"
# What capture writes for the call of a metric, wherever it is held, and for the value that is computed in it.
_CALLED, _COMPUTES = "advisor:metric|", "advisor:computes|"


class MetricCall(Struct, frozen=True):
    """A line that calls a metric: the path in its model, or else the name of what holds it.

    called, computed  the share of the recorded line's time within such calls, and within their `compute()`, 0 to 1
    """

    name: str
    source: Source
    of_model: bool
    called: float
    computed: float


class MetricModules(Struct, frozen=True):
    """The metrics that are called in the recorded steps, one for each line of the script that calls some.

    None that the backward pass goes through: its value is the loss, or a part of it.
    """

    calls: tuple[MetricCall, ...]

    @classmethod
    def compute(cls, recorded: LinesTrace | None, record: RankRecord) -> MetricModules:
        """The calls of this rank; none where there is no metric, or the script calls `update()` alone.

        Missing where lines were not recorded. A call and the line that makes it are ranges of one thread.
        """
        if recorded is None:
            raise Missing(_NO_LINES)
        metrics = {one["path"] for one in (record.model or {}).get("modules") or [] if one.get("metric")}
        events = recorded.trace.events
        ranges, rows = events.of(Category.ANNOTATION), _called(events, metrics)
        if not len(rows):
            return cls(())
        above = nearest(parents(events, ranges), events.named(LINE))
        found: dict[Source, int] = {}
        lines: dict[Source, list[int]] = {}
        for row in rows.tolist():  # a collection of metrics before those that it calls
            line = parse_record(events.text(int(above[row]))) if above[row] >= 0 else None
            if line is not None and (line in found or not _is_differentiated(events, row)):
                found.setdefault(line, row)
                lines.setdefault(line, []).append(int(above[row]))
        values = np.flatnonzero(events.named(_COMPUTES) & ranges)
        calls = []
        for line, row in found.items():
            path = parse_range(events.text(row).removeprefix(_CALLED))[0]
            own = _spans(events, np.unique(lines[line]))
            called, computed = (total(intersect(own, _spans(events, some))) / total(own) for some in (rows, values))
            calls.append(MetricCall(path, line, path in metrics, called, computed))
        return cls(tuple(calls))


def _spans(events: Events, rows: Rows) -> Intervals:
    """When one of some rows of the lines' thread ran."""
    return union(events.start_ns[rows], events.end_ns[rows])


def _called(events: Events, metrics: set[str]) -> Rows:
    """Calls of metrics that compute a value, as they began: all of torchmetrics in the model, others if seen to."""
    ranges = events.of(Category.ANNOTATION)
    known = events.names_where(lambda name: name.startswith(PREFIX) and parse_range(name)[0] in metrics)
    calls = np.flatnonzero(events.named(_CALLED) & ranges)
    values = np.flatnonzero(events.named(_COMPUTES) & ranges)
    inside = (events.start_ns[values] >= events.start_ns[calls, None]) & (
        events.end_ns[values] <= events.end_ns[calls, None]
    )
    same = events.thread[values] == events.thread[calls, None]
    rows = np.union1d(np.flatnonzero(events.rows_with(known) & ranges), calls[(inside & same).any(axis=1)])
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def _is_differentiated(events: Events, row: int) -> bool:
    """Whether a node of autograd that was made within this range ran in a backward pass.

    An op carries the number that the next node gets, be it this op that makes it or a later one: made within the range
    are those from the number of its first op on, and before that of the first op behind it.
    """
    ops = events.of(Category.CPU_OP) & (events.thread == events.thread[row]) & (events.sequence >= 0)
    nodes = backward_rows(events)
    forward = np.flatnonzero(ops & ~nodes & (events.start_ns >= events.start_ns[row]))
    forward = forward[np.argsort(events.start_ns[forward], kind="stable")]
    inside = events.end_ns[forward] <= events.end_ns[row]
    behind = forward[events.start_ns[forward] >= events.end_ns[row]]
    if not inside.any():
        return False
    first = int(events.sequence[forward[inside]].min())
    end = int(events.sequence[behind[0]]) if len(behind) else int(events.sequence[forward[inside]].max()) + 1
    went = events.sequence[nodes & (events.start_ns >= events.end_ns[row])]
    return bool(((went >= first) & (went < end)).any())

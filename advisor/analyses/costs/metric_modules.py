"""Metrics of torchmetrics that are modules of the model: the lines that call them in training steps."""

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
from advisor.trace.events import Category, Events


class MetricModules(Struct, frozen=True):
    """Path of each metric that is called in the recorded steps, and the line of the script that calls it.

    None that the backward pass goes through: its value is the loss, or a part of it.
    """

    calls: tuple[tuple[str, Source], ...]

    @classmethod
    def compute(cls, recorded: LinesTrace | None, record: RankRecord) -> MetricModules:
        """The calls of this rank; none where the model has no metric, or the script calls `update()` alone.

        Missing where lines were not recorded. A call and the line that makes it are ranges of one thread.
        """
        if recorded is None:
            raise Missing("lines were not recorded; capture the script with `advisor run`, without --no-lines")
        metrics = {one["path"] for one in (record.model or {}).get("modules") or [] if one.get("metric")}
        events = recorded.trace.events
        called = events.names_where(lambda name: name.startswith(PREFIX) and parse_range(name)[0] in metrics)
        if not called.any():
            return cls(())
        ranges = events.of(Category.ANNOTATION)
        above = nearest(parents(events, ranges), events.named(LINE))
        found: dict[str, Source] = {}
        for row in (events.rows_with(called) & ranges).nonzero()[0].tolist():
            path = parse_range(events.text(row))[0]
            line = parse_record(events.text(int(above[row]))) if above[row] >= 0 else None
            if line is not None and path not in found and not _is_differentiated(events, row):
                found[path] = line
        return cls(tuple(found.items()))


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

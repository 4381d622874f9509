"""Metrics of torchmetrics that are modules of the model: the lines that call them in training steps."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.nesting import nearest, parents
from advisor.analyses.costs.module_calls import PREFIX, parse_range
from advisor.analyses.lines.line_records import PREFIX as LINE
from advisor.analyses.lines.line_records import parse_record
from advisor.analyses.lines.lines import LinesTrace
from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Category


class MetricModules(Struct, frozen=True):
    """Path of each metric that is called in the recorded steps, and the line of the script that calls it."""

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
            line = parse_record(events.text(int(above[row]))) if above[row] >= 0 else None
            if line is not None:
                found.setdefault(parse_range(events.text(row))[0], line)
        return cls(tuple(found.items()))

"""Traces in other formats as a `Trace`: the rows that their readers give go through the same columns."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from msgspec.structs import replace

from advisor.trace.events import Trace
from advisor.trace.read.extract import extract
from advisor.trace.read.kineto import collector_off, trace_of
from advisor.trace.read.rows import Rows

if TYPE_CHECKING:
    from advisor.trace.formats.converted import Converted


def read_converted(converted: Converted, path: str) -> Trace:
    """The trace in a file of another format. Raises InputError where it is none."""
    rows = Rows()
    with collector_off():
        for some in converted.slices():
            rows.keep(extract(some, rows.tables))
    facts = {**converted.facts, "baseTimeNanoseconds": converted.base_ns}
    trace = trace_of(rows, facts, path, "list", converted.cut_short)
    return dataclasses.replace(
        trace, meta=replace(trace.meta, format=converted.format), health=(*converted.health(), *trace.health)
    )

"""What each step does, counted: the same on every run of the same code, whatever the machine's mood."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from advisor.analyses.base.classify import communication_rows, device_allocations, launch_calls
from advisor.analyses.base.links import Links
from advisor.analyses.base.nesting import Nesting
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.line_marks import marks
from advisor.analyses.lines.lines import Lines, LineTime
from advisor.analyses.step.blocking_calls import Drains
from advisor.capture.record import RankRecord
from advisor.model import Counter, OpRow, Source, Unit
from advisor.trace.events import Category, Events, Ints, Mask, Trace
from advisor.trace.numbers import small

# Rows of the loop's own making: they mark steps and lines, and do no work of the script's.
_MARKS = ("ProfilerStep#", "advisor:")
# Lines in the report: a training step that a person wrote has fewer.
_MOST_LINES = 40


class StepCounts(Struct, frozen=True):
    """Counters with one value for each step of W; a count that the trace does not contain is absent, never zero.

    counters  totals under the id of their metric if there is one, and parts of a total after a colon:
              `op:NAME` by op, `sync:FILE FUNCTION OP` by call site. In addition to metrics: `scalar_reads` (aten::item
              calls outside the optimizer), `compiled_regions` (torch.compile regions entered),
              `collective_bytes`, `graph_breaks` (of the whole run)
    lines     time on the loop's thread by the user's line, µs and visits per step, largest first
    line_marks  digests of the text of these lines, if recorded
    """

    counters: tuple[Counter, ...]
    lines: tuple[OpRow, ...]
    line_marks: dict[str, str] = field(default_factory=dict)

    @classmethod
    def compute(
        cls,
        trace: Trace,
        steps: Steps,
        links: Links,
        nesting: Nesting,
        lines: Lines,
        drains: Drains,
        record: RankRecord | None,
    ) -> StepCounts:
        """Counts of this rank."""
        tally = _Tally(trace.events, steps, links.step, lines)
        found = [*_host(tally, nesting), *_graph_breaks(record)]
        if trace.events.of(Category.RUNTIME).any():
            found += [*_calls(tally), *_syncs(tally, drains, lines)]
        if trace.device_work.any():
            found += _device(tally)
        hot = lines.hot(steps.window, _MOST_LINES)
        known = marks(((_line_name(one), one.source) for one in hot), record.line_digests if record else {})
        return cls(tuple(sorted(found, key=lambda one: one.id)), tuple(_line_rows(steps, hot)), known)


class _Tally(Struct, frozen=True, eq=False):
    """Counts rows by step."""

    events: Events
    steps: Steps
    step: Ints
    lines: Lines

    def of(self, id_: str, rows: Mask, unit: Unit = "count", weights: Ints | None = None) -> Counter:
        """The counter of these rows; rows outside the steps count for nothing. Its place is that of the last row."""
        return self.counter(id_, np.flatnonzero(rows & (self.step >= 0)), unit, weights)

    def by_name(self, rows: Mask) -> Iterator[tuple[int, Ints]]:
        """Rows inside the steps, one name of the table after the other."""
        inside = np.flatnonzero(rows & (self.step >= 0))
        inside = inside.take(np.argsort(small(self.events.name.take(inside)), kind="stable"))
        names = self.events.name.take(inside)
        for part in np.split(inside, np.flatnonzero(names[1:] != names[:-1]) + 1) if len(inside) else ():
            yield int(self.events.name[part[0]]), part

    def counter(self, id_: str, inside: Ints, unit: Unit = "count", weights: Ints | None = None) -> Counter:
        """The counter of rows that are known to lie inside the steps."""
        summed = None if weights is None else weights[inside]
        per_step = np.bincount(self.step.take(inside), weights=summed, minlength=self.steps.count)
        where = self.lines.where_op(int(inside[-1])) if len(inside) else None
        return Counter(id_, unit, tuple(float(value) for value in per_step), where)


def _host(tally: _Tally, nesting: Nesting) -> Iterator[Counter]:
    events = tally.events
    ops = events.of(Category.CPU_OP) & ~events.named(*_MARKS)
    yield replace(tally.of("cpu_ops", ops), where=None)  # of everything, so of no place
    in_optimizer = nesting.within(events.named("Optimizer.step#"))
    yield tally.of("scalar_reads", events.exactly("aten::item") & ~in_optimizer)
    talks = communication_rows(events) & events.of(Category.ANNOTATION, Category.CPU_OP)
    yield tally.of("collectives", talks)
    regions = events.named("Torch-Compiled Region")
    if regions.any():
        yield tally.of("compiled_regions", regions)
    for name, rows in tally.by_name(ops):
        yield tally.counter(f"op:{_stable(events.names[name])}", rows)


def _stable(name: str) -> str:
    """A name without what differs from run to run (addresses)."""
    return re.sub(r"0x[0-9a-f]{6,}", "0x…", name)


def _calls(tally: _Tally) -> Iterator[Counter]:
    yield tally.of("launches", launch_calls(tally.events))
    yield tally.of("device_allocs", device_allocations(tally.events))


def _syncs(tally: _Tally, drains: Drains, lines: Lines) -> Iterator[Counter]:
    events = tally.events
    calls = np.zeros(len(events), np.bool_)
    counted = drains.call[drains.named]
    calls[counted] = True
    yield tally.of("syncs", calls)
    sites: dict[str, tuple[list[int], Source | None]] = {}
    for call, op in zip(counted.tolist(), drains.op[drains.named].tolist(), strict=True):
        where = lines.where_op(op)
        # Without the line: it moves with every edit above it.
        place = f"{where.file} {where.function} " if where else ""
        sites.setdefault(f"sync:{place}{events.text(op)}", ([], where))[0].append(call)
    for id_, (rows, where) in sites.items():
        mine = np.zeros(len(events), np.bool_)
        mine[rows] = True
        yield replace(tally.of(id_, mine), where=where)


def _device(tally: _Tally) -> Iterator[Counter]:
    events = tally.events
    yield tally.of("kernels", events.of(Category.KERNEL))
    copies = events.of(Category.MEMCPY)
    yield tally.of("copies", copies)
    for id_, rows in (
        ("h2d_bytes", copies & events.named("HtoD")),
        ("h2d_pageable_bytes", copies & events.named("HtoD") & events.named("pageable")),
        ("d2h_bytes", copies & events.named("DtoH")),
    ):
        if (events.bytes.compress(rows) >= 0).all():
            yield tally.of(id_, rows, "bytes", events.bytes)


def _graph_breaks(record: RankRecord | None) -> Iterator[Counter]:
    """Graph breaks of the whole run: torch.compile counts them as it compiles, not step by step."""
    breaks = (record.compile or {}).get("graph_breaks") if record else None
    if isinstance(breaks, dict):
        yield Counter("graph_breaks", "count", (float(sum(breaks.values())),))


def _line_rows(steps: Steps, lines: Iterable[LineTime]) -> Iterator[OpRow]:
    for line in lines:
        share = line.us / steps.step_us if steps.step_us else 0.0
        yield OpRow(_line_name(line), "line", line.us, line.calls, share)


def _line_name(line: LineTime) -> str:
    source = line.source
    return f"{source.file}:{source.line} {source.function}".rstrip()

"""The loop's thread in no op: Python, as people write it."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.optimizer_closures import closure_spans
from advisor.analyses.base.steps import Steps
from advisor.analyses.lines.lines import Lines, LineTime
from advisor.analyses.step.input_wait import fetch_rows
from advisor.analyses.step.phases import Phases, optimizer_rows
from advisor.trace.events import Category, Trace
from advisor.trace.intervals import Intervals, subtract, total


class HostGaps(Struct, frozen=True, eq=False):
    """Time of the loop's thread in W with no op, no fetch, no optimizer span, no backward pass and no runtime call.

    Time between two nodes of the backward pass is that of the autograd engine, not of Python. A closure within an
    optimizer's step is as it would be outside.

    spans   that time
    us      µs per step
    share   of |W|
    top     the user's lines that ran meanwhile, most expensive first; empty if lines are not known
    """

    spans: Intervals
    us: float
    share: float
    top: tuple[LineTime, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, lines: Lines, phases: Phases) -> HostGaps:
        """Python time of the loop."""
        events = trace.events
        on_loop = events.thread == steps.main_thread
        used = (events.of(Category.CPU_OP, Category.RUNTIME) | fetch_rows(events)) & on_loop
        updating = subtract(events.covered(optimizer_rows(events) & on_loop), closure_spans(events))
        spans = subtract(subtract(steps.window, events.covered(used)), updating)
        spans = subtract(spans, phases.backward)
        return cls(spans, steps.of_window_us(total(spans)), total(spans) / steps.window_ns, lines.hot(spans))

"""Which line of the user's code ran."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.model import Source
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals


@dataclass(frozen=True, slots=True)
class LinesTrace:
    """The second trace of a capture: slower, and only good for lines (`advisor:line|file|line|function` rows)."""

    trace: Trace


@dataclass(frozen=True, slots=True)
class LineTime:
    """Time that one place of the user's code took: µs and visits per step."""

    source: Source
    us: float
    calls: float


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Answers which user code ran an event or filled a span of the loop's thread.

    Sources, best first: the lines trace, aligned with the profiled steps by (op name, ordinal within the step); Python
    frames of the trace; `Call stack` arguments of its ops. Frames name a function's first line (precision "function").

    available   whether any source of lines exists;  why   else why not
    """

    available: bool
    why: str

    def where_op(self, row: int) -> Source | None:
        """The user's line that ran this event, None where it is not known."""
        return None

    def where_span(self, start_ns: int, end_ns: int) -> Source | None:
        """The user's line that ran for most of a span of the loop's thread, None where it is not known."""
        return None

    def hot(self, intervals: Intervals, n: int = 5) -> tuple[LineTime, ...]:
        """The lines that ran for most of the given time on the loop's thread; empty where lines are not known."""
        return ()

    @classmethod
    def compute(cls, trace: Trace, steps: Steps, recorded: LinesTrace | None) -> Lines:
        """Lines of this rank; never Missing."""
        raise Missing("this analysis is not written yet")

"""The loop's thread in no op: Python, as people write it."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.analyses.lines import LineTime
from advisor.analyses.steps import Steps
from advisor.computed import Missing
from advisor.trace.events import Trace
from advisor.trace.intervals import Intervals


@dataclass(frozen=True, slots=True, eq=False)
class HostGaps:
    """Time of the loop's thread in W with no op, no fetch, no optimizer span and no runtime call.

    spans   that time
    us      µs per step
    share   of |W|
    top     the user's lines that ran meanwhile, most expensive first; empty where lines are not known
    """

    spans: Intervals
    us: float
    share: float
    top: tuple[LineTime, ...]

    @classmethod
    def compute(cls, trace: Trace, steps: Steps) -> HostGaps:
        """Python time of the loop."""
        raise Missing("this analysis is not written yet")

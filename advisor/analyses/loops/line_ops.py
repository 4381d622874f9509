"""Ops that lines of the user's code call themselves."""

from __future__ import annotations

from msgspec import Struct

from advisor.analyses.base.step_ops import StepOps
from advisor.analyses.step.breakdown import Breakdown
from advisor.arrays import Ints
from advisor.trace.intervals import starts_in


class LineOps(Struct, frozen=True):
    """Outermost ops of the loop's thread that are not the loader's, the optimizer's or the backward pass's.

    rows  their rows, in order of start
    """

    rows: Ints

    @classmethod
    def compute(cls, ops: StepOps, breakdown: Breakdown) -> LineOps:
        """The ops of the profiled steps."""
        found = ops.outermost
        for part in ("input", "backward", "optimizer"):
            if (spans := breakdown.intervals.get(part)) is not None:
                found = found[~starts_in(ops.events.start_ns[found], spans)]
        return cls(found)

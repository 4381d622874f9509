"""Where the step goes without the profiler."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from advisor.analyses.costs.price import Price
from advisor.analyses.step.breakdown import Breakdown
from advisor.model import BreakdownItem


class PlainBreakdown(Struct, frozen=True, eq=False):
    """The parts of `Breakdown` with their shares of the un-profiled step; shares sum to 1.

    On a host the profiler slows parts of many short operators more than others: each part takes the middle of what
    `Deprofiled` leaves of it. On a device, and where no step was timed without the profiler, as in `Breakdown`.
    """

    items: tuple[BreakdownItem, ...]

    @classmethod
    def compute(cls, breakdown: Breakdown, price: Price) -> PlainBreakdown:
        """The parts of this rank's step."""
        known = price.deprofiled
        if breakdown.on_device or known.plain_us == known.recorded_us:
            return cls(breakdown.items)
        shares = [sum(price.share_of(breakdown.intervals[item.id])) for item in breakdown.items]
        whole = sum(shares)
        if not whole:
            return cls(breakdown.items)
        step_us = price.ops.steps.step_us
        return cls(
            tuple(
                replace(item, share=share / whole, us=share / whole * step_us)
                for item, share in zip(breakdown.items, shares, strict=True)
            )
        )

"""What the device waits for launches, as far as no other rule tells the loop that they lie in."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.api import Intervals, Price, RepeatedOps, subtract, union

from ..cheaper_equivalents._positions_on_device import KINDS, ToldPositions
from ..cheaper_equivalents.indices._tables_on_device import ToldTables
from .waits._waits import FEW_READS, READS, SIZES, LeftSyncs, Waits, go_with_loops

_LOOK_UP = "embedding"


class LaunchWaits(Struct, frozen=True, eq=False):
    """Idle time before launches, without that which other rules tell: of tables, positions, and loops that read.

    spans     the waits (absolute ns);  us, share: per profiled step
    repeated  loops, but for those that these tell
    reads     calls in a step that read values or sizes from the device, where more than a few do: no graph can be
              captured across them;  read_by: these ops, the most frequent first
    """

    spans: Intervals
    us: float
    share: float
    repeated: RepeatedOps
    reads: float = 0.0
    read_by: tuple[str, ...] = ()

    @classmethod
    def compute(
        cls,
        price: Price,
        repeated: RepeatedOps,
        tables: ToldTables,
        positions: ToldPositions,
        waits: Waits | None,
        syncs: LeftSyncs | None,
    ) -> LaunchWaits:
        """The waits of a trace. Missing waits and syncs: it has no calls that could block."""
        breakdown = price.breakdown
        spans, us, share = (
            breakdown.intervals["idle_launch"],
            breakdown.us("idle_launch"),
            breakdown.share("idle_launch"),
        )
        # Reads of masks go with the loop around them, and its launches with both, unless these are what it lasts for.
        looped_us = breakdown.us_in("idle_launch", repeated.spans)
        sites = [one.site for one in waits.told] if waits is not None else []
        reads = any(2 * site.us >= looped_us and go_with_loops(site, price, repeated) for site in sites)
        told = np.concatenate((tables.spans, positions.spans, repeated.spans if reads else repeated.spans[:0]))
        count, by = _reads(syncs)
        if not len(told):
            return cls(spans, us, share, repeated, count, by)
        told = union(told[:, 0], told[:, 1])
        left = us - breakdown.us_in("idle_launch", told)
        names = {_LOOK_UP} if len(tables.spans) else set()
        names |= {name.removeprefix("aten::") for name in KINDS} if len(positions.spans) else set()
        others = tuple(loop for loop in repeated.loops if not reads and not names.intersection(loop.ops))
        spans, share = subtract(spans, told), share * (left / us if us else 1.0)
        return cls(spans, left, share, replace(repeated, loops=others), count, by)


def _reads(syncs: LeftSyncs | None) -> tuple[float, tuple[str, ...]]:
    """How often the script reads in a step, and by which ops; none of a few."""
    sites = [one for one in syncs.syncs.sites if one.from_user and one.op in (*READS, *SIZES)] if syncs else []
    sites.sort(key=lambda one: -one.calls)
    calls = sum(one.calls for one in sites)
    return (calls, tuple(dict.fromkeys(one.op for one in sites))) if calls > FEW_READS else (0.0, ())

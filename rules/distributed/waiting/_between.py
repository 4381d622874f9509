"""Reductions in line with the computation, one after another: what lies between them goes when buckets replace them."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Ints, Price

# A kernel so short takes what it takes to begin, whatever it computes: of a bucket there is one.
_SHORT_NS = 10_000


def gaps_us(price: Price, rows: Ints) -> float:
    """Idle time that nothing explains right before and after these collectives, µs per step.

    One stream tells the other that it is done, and only then does the next kernel start: no launch is late there.
    """
    events, idle = price.ops.events, price.breakdown.intervals.get("idle_unknown")
    if idle is None or not len(idle):
        return 0.0
    beside = np.isin(idle[:, 1], events.start_ns[rows]) | np.isin(idle[:, 0], events.end_ns[rows])
    return price.breakdown.us_in("idle_unknown", idle[beside])


def alone_between(price: Price, rows: Ints) -> Ints:
    """Short kernels before and after which the device runs nothing but these collectives: a division, a copy."""
    events, ops = price.ops.events, price.ops
    work = np.flatnonzero(ops.trace.device_work & ops.links.inside)
    work = work[np.argsort(events.start_ns[work], kind="stable")]
    collective = np.isin(work, rows)
    alone = ~collective[1:-1] & collective[:-2] & collective[2:]
    found = work[1:-1][alone]
    return found[(events.dur_ns[found] < _SHORT_NS) & events.of(Category.KERNEL)[found]]

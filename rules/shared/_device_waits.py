"""What work of the host costs beside a device: the time for which the device waits for it, and no more."""

from __future__ import annotations

import numpy as np

from advisor.api import Intervals, Price, intersect, union

# Idle time that the host causes, and copies that nothing hides; a device with work in its queue waits for nobody.
PARTS = ("idle_host", "idle_launch", "idle_sync", "exposed_copy")


def waiting(price: Price, spans: Intervals) -> Intervals:
    """When the device waits while the host is in these spans (absolute ns)."""
    found = [price.breakdown.intervals[part] for part in PARTS if part in price.breakdown.intervals]
    both = np.concatenate(found) if found else np.empty((0, 2), np.int64)
    return intersect(union(both[:, 0], both[:, 1]), spans)


def waiting_us(price: Price, spans: Intervals) -> float:
    """The same, µs per profiled step, without what the profiler added to idle time."""
    return sum(price.breakdown.us_in(part, spans) for part in PARTS)

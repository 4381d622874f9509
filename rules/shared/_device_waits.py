"""What work of the host costs beside a device: the time for which the device waits for it, and no more."""

from __future__ import annotations

import numpy as np

from advisor.api import Category, Intervals, Price, StateRead, intersect, union

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


def to_host(price: Price, run: StateRead) -> float:
    """Bytes that copies launched within a read of the state carry from the device to the host."""
    events, launch = price.ops.events, price.ops.links.launch
    copies = np.flatnonzero(events.of(Category.MEMCPY) & events.named("DtoH") & (launch >= 0) & (events.bytes >= 0))
    launched = events.start_ns[launch[copies]]
    return float(events.bytes[copies[(launched >= run.start_ns) & (launched < run.until_ns)]].sum())

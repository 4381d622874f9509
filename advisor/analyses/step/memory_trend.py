"""Memory over the run: whether it grows from step to step, and by how much."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from msgspec import Struct

from advisor.capture.record import MemoryReading, RankRecord
from advisor.computed import Missing

# Growth is from step to step where intervals of different length show about the same rate. Allocators grow with the
# largest batch so far, in leaps and ever more rarely: rates of a healthy script with sentences of different length were
# three times apart, those of one that keeps a graph in each step a seventh.
_LEAST, _MOST = 0.6, 1.6
# In fewer steps one leap looks like growth.
_INTERVAL_STEPS, _INTERVALS = 8, 3


class MemoryTrend(Struct, frozen=True):
    """Growth of memory per training step: of the device if it has tensors, else of the process.

    bytes_per_step  median over the intervals between readings, each with the same weight; 0 if it does not grow in
                    all of them at a similar rate
    grown_bytes     from the first reading to the last
    steps           iterations between these
    on_device       device memory, else that of the process
    now_bytes       at the last reading
    """

    bytes_per_step: float
    grown_bytes: float
    steps: int
    on_device: bool
    now_bytes: float

    @classmethod
    def compute(cls, record: RankRecord) -> MemoryTrend:
        """The trend. Missing if there are too few readings."""
        readings = record.vitals.memory if record.vitals else []
        device = [(one, one.allocated_bytes) for one in readings if one.allocated_bytes]
        host = [(one, one.resident_bytes) for one in readings if one.resident_bytes]
        series = device or host
        rates = [
            (now - before) / (later.step - earlier.step)
            for (earlier, before), (later, now) in itertools.pairwise(series)
            if _comparable(earlier, later)
        ]
        if len(rates) < _INTERVALS:
            raise Missing("memory was measured at too few steps to see whether it grows; let the script run longer")
        (first, start), (last, end) = series[0], series[-1]
        return cls(_steady(rates), float(end - start), last.step - first.step, bool(device), float(end))


def _comparable(earlier: MemoryReading, later: MemoryReading) -> bool:
    """Enough training lies between the two, and nothing else: no profiler has come or gone."""
    long = later.step - earlier.step >= _INTERVAL_STEPS
    return long and (earlier.phase, later.phase) in (("timing", "timed"), ("after", "after"))


def _steady(rates: Sequence[float]) -> float:
    """The median rate where all are about that; else 0."""
    typical = statistics.median(rates)
    alike = all(_LEAST * typical <= rate <= _MOST * typical for rate in rates)
    return typical if typical > 0 and alike else 0.0

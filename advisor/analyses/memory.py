"""The memory high-water mark."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.trace.events import Trace


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """The most device memory that tensors held at once.

    bytes      peak of allocated device memory
    reserved   peak of what the caching allocator held, None where unknown
    """

    bytes: float
    reserved: float | None

    @classmethod
    def compute(cls, trace: Trace, record: RankRecord | None) -> PeakMemory:
        """Peak memory. Raises Missing where neither the capture nor memory events in the trace tell it."""
        raise Missing("this analysis is not written yet")

"""The memory high-water mark."""

from __future__ import annotations

from msgspec import Struct

from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.trace.events import Trace


class PeakMemory(Struct, frozen=True):
    """The most device memory that tensors held at once.

    bytes      peak of allocated device memory
    reserved   peak of memory reserved by the caching allocator, None if unknown
    """

    bytes: float
    reserved: float | None

    @classmethod
    def compute(cls, trace: Trace, record: RankRecord | None) -> PeakMemory:
        """Peak memory. Raises Missing if neither capture nor the trace's memory events contain it."""
        recorded = (record.memory or {}) if record else {}
        if "peak_allocated_bytes" in recorded:
            return cls(float(recorded["peak_allocated_bytes"]), recorded.get("peak_reserved_bytes"))
        memory = trace.memory
        # Device type 0 is the host; its rows carry no total worth the name.
        on_device = (memory.device_type > 0) & (memory.total_allocated >= 0)
        if not on_device.any():
            if len(memory.device_type):
                raise Missing("memory was recorded for the CPU only: no device allocated any")
            raise Missing("memory was not recorded: neither by `advisor run` nor by the profiler (profile_memory=True)")
        reserved = memory.total_reserved[on_device]
        return cls(
            float(memory.total_allocated[on_device].max()), float(reserved.max()) if reserved.max() >= 0 else None
        )

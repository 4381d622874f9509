"""What work that the trace does not hold would take on a host: calls of small ops, and copies."""

from __future__ import annotations

from msgspec import Struct

from advisor.calibration.calibration import Calibration
from advisor.constants import constant

Range = tuple[float, float]
# What a core finds in its caches it copies at their rate.
_CACHED_BYTES = constant("memory.core_cache_bytes").value


class AddedWork(Struct, frozen=True):
    """Costs on the machine of the run: as calibrated there, else the table's range (`machine.*`).

    Ranges are µs of the un-profiled step: from calls one after the other to calls where other work ran before.
    """

    calibration: Calibration

    def calls_us(self, of: str) -> Range:
        """(least, most) µs of what `constants.toml` gives in calls of an elementwise op, "op_calls.sort"."""
        least, most = constant(of).range
        return least * self.calibration.op_call_us.low, most * self._cold_us

    def recorded_calls_us(self, of: str) -> float:
        """The most that these calls take while they are recorded, µs: what takes no longer has no work to speak of."""
        row = self.calibration.profiler_row_cold_us or self.calibration.profiler_row_us
        return constant(of).high * (self._cold_us + row.high)

    def copied_us(self, numbers_bytes: float) -> Range:
        """(least, most) µs in which one thread reads so many bytes and writes as many."""
        quick, slow = self.calibration.core_memory_gbs.high, self.calibration.core_memory_gbs.low
        cache = self.calibration.core_cache_gbs
        if cache is not None and 2 * numbers_bytes <= _CACHED_BYTES:
            quick = max(quick, cache.high)
        return 2 * numbers_bytes / (1e3 * quick), 2 * numbers_bytes / (1e3 * slow)

    @property
    def _cold_us(self) -> float:
        warm, cold = self.calibration.op_call_us, self.calibration.op_call_cold_us
        return max(warm.high, cold.high if cold else 0.0)

    @classmethod
    def compute(cls, calibration: Calibration) -> AddedWork:
        """The costs of added work on this machine."""
        return cls(calibration)

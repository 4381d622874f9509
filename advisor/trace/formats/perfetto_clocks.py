"""Times of packets: each states a clock, snapshots say how clocks relate.

Numbers of fields: protos/perfetto/trace/clock_snapshot.proto of github.com/google/perfetto.
"""

from __future__ import annotations

from dataclasses import dataclass

from advisor.trace.formats.wire import fields, message, number

# Clocks that stand still while no snapshot names another one (builtin_clock.proto).
BOOTTIME = 6
# These belong to one sequence of packets each.
_OF_SEQUENCE = range(64, 128)
_CLOCKS, _ID, _TIMESTAMP, _INCREMENTAL, _UNIT = 1, 1, 2, 3, 4


@dataclass(slots=True)
class _Clock:
    """A clock as the latest snapshot of it says.

    unit       ns that one count stands for
    last       of an incremental clock: counts so far, which the next packet's stamp is added to
    offset_ns  what is added to be ns of the trace's clock
    """

    unit: int
    offset_ns: int
    incremental: bool
    last: int


class Clocks:
    """The clocks of one trace, as far as snapshots were read."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], _Clock] = {}

    def snapshot(self, data: bytes, sequence: int) -> None:
        """Takes in a ClockSnapshot of a sequence. Raises DamagedError."""
        seen = [message(part) for key, part in fields(data) if key == _CLOCKS and isinstance(part, bytes)]
        times = {number(one.get(_ID)): number(one.get(_TIMESTAMP)) * (number(one.get(_UNIT)) or 1) for one in seen}
        for one in seen:
            clock = number(one.get(_ID))
            # The trace's own clock; where a snapshot leaves it out, clocks stay as they are.
            offset = times[BOOTTIME] - times[clock] if BOOTTIME in times else 0
            count = number(one.get(_TIMESTAMP))
            made = _Clock(number(one.get(_UNIT)) or 1, offset, bool(number(one.get(_INCREMENTAL))), count)
            before = self._known.get(self._key(clock, sequence))
            if before is not None and not made.incremental:
                made.offset_ns = before.offset_ns  # one offset for the whole trace, so that durations are the clock's
            self._known[self._key(clock, sequence)] = made

    def time_ns(self, stamp: int, clock: int, sequence: int) -> int:
        """ns of a packet's time stamp. Must be asked once for each packet, in file order."""
        known = self._known.get(self._key(clock, sequence))
        if known is None:
            return stamp
        if known.incremental:
            known.last += stamp
            stamp = known.last
        return stamp * known.unit + known.offset_ns

    @staticmethod
    def _key(clock: int, sequence: int) -> tuple[int, int]:
        return (clock, sequence if clock in _OF_SEQUENCE else 0)

"""Python threads that run beside the training loop, and what the loop waits for meanwhile."""

from __future__ import annotations

from msgspec import Struct

from advisor.capture.record import RankRecord
from advisor.computed import Missing
from advisor.model import Source

# One reading of a clock is exact to microseconds, but a core changes hands every few milliseconds.
_LEAST_TIMED_US = 20_000.0


class SideThread(Struct, frozen=True):
    """A Python thread that was alive when the un-profiled timing ended.

    source   the script's function that it runs;  now: the line that ran there then, None where it is not known
    """

    name: str
    cpu_share: float
    source: Source | None
    now: Source | None = None


class SideThreads(Struct, frozen=True):
    """Python threads other than the loop's, in the un-profiled timing phase; shares are of its wall time.

    threads        the busiest first; cpu_share: CPU time of the thread
    loop_share     CPU time of the loop's thread
    waiting_share  time in which the loop's thread did not run: it waited for the GIL, for a core, for threads of ops,
                   for workers or for a device
    cores_used     CPU time of the whole process: the average number of cores it kept busy
    """

    threads: tuple[SideThread, ...]
    loop_share: float
    waiting_share: float
    cores_used: float

    @classmethod
    def compute(cls, record: RankRecord) -> SideThreads:
        """Threads of the rank. Missing if the times of threads were not recorded."""
        vitals = record.vitals
        if vitals is None or vitals.threads is None or vitals.loop_cpu_us is None:
            raise Missing("CPU times of threads were not recorded; capture the script with `advisor run` on Linux")
        if not vitals.timed_us or vitals.timed_us < _LEAST_TIMED_US:
            raise Missing("the steps timed without the profiler were too short to see what threads did")
        wall_us = vitals.timed_us
        threads = [
            SideThread(
                one.name,
                one.cpu_us / wall_us,
                Source(one.file, one.line, one.function, "function") if one.file else None,
                Source(one.file, one.now, one.function) if one.file and one.now else None,
            )
            for one in vitals.threads
        ]
        loop = min(vitals.loop_cpu_us / wall_us, 1.0)
        used = (vitals.process_cpu_us or 0.0) / wall_us
        return cls(tuple(sorted(threads, key=lambda one: -one.cpu_share)), loop, 1.0 - loop, used)

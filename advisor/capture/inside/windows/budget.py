"""What capture may cost a script: CPU time, measured as it is spent, held against what the script itself has used.

The bound for any script is 5 s and 15 % of its own CPU time in all, the report included (docs/capture.md). What a
window will cost is known before it is paid: most of it is spent when the profiler stops, in proportion to its rows.
Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator

# The bound, s and share of the script's own CPU time.
FIXED_S, SHARE = 5.0, 0.15
# Of it for what does not grow with the trace: start of `advisor run`, pre-flight, a report of few rows, walks over the
# objects of Python. Small scripts cost 1.2 to 1.5 s in all (2 cores of a server CPU, torch 2.14, n = 8).
_RESERVED_S = 1.6
# CPU time for each row of a window, µs: recording, stopping, export and compression in this process; and what reading
# and analysing it adds to the report. The first is replaced by what the first window took. 9 with `trace_only` and 15
# without on the same machine (windows of 48,000 and 480,000 rows); on 2 cores of an AMD EPYC (torch 2.15) 10.9 to 15.8
# with and 11.1 to 12.7 without (57,000 to 162,000 rows, n = 15, the more rows the dearer); 2.5 for the report. The
# dearest counts: lines that were refused too early are asked for again later, rows that were paid for are gone.
_ROW_US, _REPORT_ROW_US = 16.0, 2.5
_FEWEST_MEASURED = 20_000
# CPU time for each row of an observed step, µs: to observe it and to write it down in this process, and to read and
# judge it in the report. Of five loops (indexed writes, an optimizer of 300 tensors one by one, LSTM cells, pairs of
# samples, a transformer) the dearest took 6.1 + 4.4 and 33, the others 10 to 12 and 17 to 22 in all (the same machine,
# 14,000 to 63,000 rows, median of 5).
_OBSERVED_ROW_US, _JUDGED_ROW_US = 12.0, 34.0
# CPU time of a walk over what the garbage collector knows, µs for each object, and the share of what is left that one
# may take which the report can do without (0.2 s for two million objects in lists and dicts).
_OBJECT_US, _WALK_SHARE = 0.1, 0.1
# What the profiler holds for a row while it records: 488 bytes in a step of an optimizer, 547 in indexed writes.
_ROW_BYTES = 500
# No op is faster: 480,000 rows took 0.16 s without the profiler.
_OP_US = 0.33
# What all of these are known for: a machine, as busy as it was, that writes and reads so many numbers as JSON in 1.5 ms
# of a thread's CPU time (2 cores of an AMD EPYC with other work on them: 1.41 to 1.50 ms, smallest of three, n = 87 of
# 90). Where that takes longer, all of them do.
_NUMBERS, _NUMBERS_S = range(20_000), 0.0015
# States how much longer than there everything takes, instead of that being measured: 1 on a machine that is slow now.
SLOWNESS = "TORCH_ADVISOR_SLOWNESS"


class Budget:
    """The CPU time that capture has left in this process.

    ranks: processes of the job on this machine.
    """

    def __init__(self, ranks: int = 1, now_s: Callable[[], float] = time.process_time) -> None:
        self.now_s = now_s
        self.ranks = ranks
        self.spent_s = 0.0
        self.owed_s = 0.0  # by the report, for rows that are written
        self.row_us = _ROW_US
        self.slowness = 1.0

    def gauge(self, takes_s: float | None = None) -> None:
        """Learns how much longer what is not yet measured here takes on this machine, as busy as it is now."""
        stated = os.environ.get(SLOWNESS, "") if takes_s is None else ""
        if stated.replace(".", "", 1).isdigit():
            self.slowness = max(1.0, float(stated))
        else:
            self.slowness = max(1.0, (_numbers_s() if takes_s is None else takes_s) / _NUMBERS_S)

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Counts the CPU time of what happens inside as ours."""
        began = self.now_s()
        try:
            yield
        finally:
            self.spent_s += self.now_s() - began

    def left_s(self) -> float:
        """CPU time that may still be spent."""
        own = self.now_s() - self.spent_s
        fixed_s = max(FIXED_S - _RESERVED_S * self.slowness, 0.0)
        return fixed_s / self.ranks + SHARE * own - self.spent_s - self.owed_s

    def rows_s(self, rows: float) -> float:
        """CPU time that so many rows of a window take in all."""
        return rows * (self.row_us + _REPORT_ROW_US * self.slowness) / 1e6

    def observing_s(self, rows: float) -> float:
        """CPU time that observing so many rows takes in all."""
        return rows * (_OBSERVED_ROW_US + _JUDGED_ROW_US) * self.slowness / 1e6

    def observed(self, rows: float) -> None:
        """So many rows were observed and written down."""
        self.owed_s += rows * _JUDGED_ROW_US * self.slowness / 1e6

    def affords(self, rows: float) -> bool:
        """Whether a window of so many rows may be opened, or go on."""
        return self.rows_s(rows) <= self.left_s()

    def affords_walk(self) -> bool:
        """Whether one more walk over all objects of the script may be made."""
        return len(gc.get_objects()) * _OBJECT_US / 1e6 <= _WALK_SHARE * self.left_s()

    def written(self, rows: int, took_s: float) -> None:
        """A window of so many rows was written; took_s: from its stop to its file."""
        if rows >= _FEWEST_MEASURED:
            self.row_us = took_s / rows * 1e6
        self.owed_s += rows * _REPORT_ROW_US * self.slowness / 1e6


def _numbers_s() -> float:
    """CPU time of this thread for what the machine is known by: others of the script may wait on theirs."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        json.loads(json.dumps(list(_NUMBERS)))
        times.append(time.thread_time() - began)
    return min(times)


class Growth:
    """How many rows the profiler holds, by the memory that was allocated since it started.

    Known within some per cent where the C library counts what is in use (glibc), and the script's own tensors are as
    many at each boundary; what they grow by without the profiler is deducted. Inside of a step, activations are there
    as well: what the first un-profiled step holds at the same place is deducted.
    """

    def __init__(self) -> None:
        self.per_step = 0.0  # bytes by which un-profiled steps grow
        self.inside: dict[str, int] = {}  # place in a step -> bytes that the script itself has more there
        self.first = False  # the first un-profiled step runs
        self.began = 0
        self.began_s = 0.0
        self.timed = 0

    def timing(self) -> None:
        """An un-profiled step begins."""
        self.first = not self.timed
        self.timed = self.timed or allocated_bytes()

    def passes(self, place: str) -> None:
        """A step is at this place, and the profiler does not record."""
        if self.first:
            self.inside[place] = max(self.inside.get(place, 0), allocated_bytes() - self.timed)

    def timing_ends(self, steps: int) -> None:
        """So many un-profiled steps are over."""
        self.first = False
        if self.timed and steps:
            self.per_step = max((allocated_bytes() - self.timed) / steps, 0.0)

    def start(self) -> None:
        """The profiler starts."""
        self.began, self.began_s = allocated_bytes(), time.process_time()

    def rows(self, steps: int, place: str = "") -> float:
        """About how many rows it holds after so many steps, at a boundary or at a place inside of the next one."""
        own = self.per_step * steps + self.inside.get(place, 0)
        held = (allocated_bytes() - self.began - own) / _ROW_BYTES
        return max(min(held, self.most_rows()), 0.0)

    def most_rows(self) -> float:
        """Rows that it would hold if all CPU time since it started had been ops, and the fastest there are."""
        return (time.process_time() - self.began_s) * 1e6 / _OP_US


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated_bytes() -> int:
    """Memory that this process has in use: by its C library, else what the system says that it holds; 0: unknown."""
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):
            count = ctypes.CDLL(None).mallinfo2  # glibc 2.33
            count.restype = _Mallinfo
            found = count()
            return int(found.uordblks + found.hblkhd)
    return resident_bytes()


def resident_bytes() -> int:
    """Memory this process holds; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0

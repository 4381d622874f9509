"""The process: its threads, its memory, its start."""

from __future__ import annotations

import msgspec


class ThreadTime(msgspec.Struct, frozen=True):
    """A Python thread other than the loop's, in the un-profiled timing phase. No file: it runs a library function."""

    name: str = ""
    cpu_us: float = 0.0
    file: str = ""
    line: int = 0  # the first line of the function
    function: str = ""
    now: int = 0  # the line of it that ran at the end of that phase


class MemoryReading(msgspec.Struct, frozen=True):
    """Memory at one boundary. phase: timing | timed (the two ends of the un-profiled phase) | after (the window)."""

    phase: str = ""
    step: int = 0  # training iterations so far
    resident_bytes: int | None = None  # private to the process: without mapped files and memory shared with workers
    allocated_bytes: int | None = None  # on the current CUDA device
    reserved_bytes: int | None = None


class Vitals(msgspec.Struct, frozen=True):
    """The process: threads in the un-profiled timing phase, memory over the run, start-up."""

    first_step_us: float | None = None  # age of the process at the first step boundary
    age_us: float | None = None  # age of the process when this was written
    ended: bool = False  # written when the script had ended
    timed_steps: int | None = None  # training iterations between the two readings of threads
    timed_us: float | None = None  # time between them
    loop_cpu_us: float | None = None  # CPU time of the loop's thread in that time
    loop_queued_us: float | None = None  # time for which that thread waited for a core
    # The longest that a thread of torch's pool did; None where NumPy has no threads that are known.
    pool_queued_us: float | None = None
    # Share of the periods of its control group's CPU quota in which that was used up; None without a quota.
    quota_used_up: float | None = None
    process_cpu_us: float | None = None
    numpy_cpu_us: float | None = None  # CPU time of the threads of the OpenBLAS that NumPy calls; None if unknown
    children: int | None = None  # multiprocessing child processes that existed all that time, loader workers included
    children_cpu_us: float | None = None  # CPU time of their main threads in that time
    windows: int = 1  # recorded until one was undisturbed; the trace is the least disturbed one
    window_waited: float | None = None  # share of that window for which the loop's thread waited for a core
    threads: list[ThreadTime] | None = None
    memory: list[MemoryReading] = []

"""How the process fared: its threads, its memory, its start."""

from __future__ import annotations

import msgspec


class ThreadTime(msgspec.Struct, frozen=True):
    """A Python thread beside the loop's, over the un-profiled timing phase. No file: it runs a library's function."""

    name: str = ""
    cpu_us: float = 0.0
    file: str = ""
    line: int = 0  # the first line of the function
    function: str = ""


class MemoryReading(msgspec.Struct, frozen=True):
    """Memory at one boundary. phase: timing | timed (the two ends of the un-profiled phase) | after (the window)."""

    phase: str = ""
    step: int = 0  # training iterations so far
    resident_bytes: int | None = None  # of the process alone: no files, nothing shared with its workers
    allocated_bytes: int | None = None  # on the current CUDA device
    reserved_bytes: int | None = None


class Vitals(msgspec.Struct, frozen=True):
    """How the process fared: threads over the un-profiled timing phase, memory over the run, the start."""

    first_step_us: float | None = None  # age of the process at the first boundary of its steps
    age_us: float | None = None  # age of the process when this was written
    ended: bool = False  # this was written at the end of the script
    timed_steps: int | None = None  # training iterations between the two readings of threads
    timed_us: float | None = None  # time between them
    loop_cpu_us: float | None = None  # CPU time of the loop's thread in it
    loop_queued_us: float | None = None  # time in which that thread was ready and had no core
    process_cpu_us: float | None = None
    children: int | None = None  # processes of multiprocessing's that lived all of that time; loader workers are such
    children_cpu_us: float | None = None  # CPU time of their main threads in it
    windows: int = 1  # that were recorded until one was calm; the calmest is the trace
    window_waited: float | None = None  # share of that one in which the loop's thread was ready and had no core
    threads: list[ThreadTime] | None = None
    memory: list[MemoryReading] = []

"""How the process fares over its run: CPU time of its threads while steps are timed, and its memory now and then.

Read at the two ends of the un-profiled timing phase, before its first mark and after its last, and at a few steps
after the window, ever further apart. A reading of memory takes some ten microseconds, one of the threads a microsecond
for each.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..facts import blas_threads, cores
from ..guards.interrupts import let_through
from ..guards.thread_frames import thread_frames
from ..guards.user_code import file_of, foreign_folders
from .phases import AFTER, WARM
from .plan import FEW

# Readings of memory after the window: at steps 4, 8, 16 … of it, so that an endless script makes few.
_FIRST_AFTER, _MOST_READINGS = 4, 16
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Vitals:
    """Readings of one process, all made on the thread of its loop. of_numpy: where they are known, NumPy's threads."""

    def __init__(self, of_numpy: Sequence[int] | None = None) -> None:
        # Found before torch has run an operator.
        self.of_numpy = blas_threads.native_ids() if of_numpy is None else of_numpy
        self.readings: list[dict[str, Any]] = []
        self.began: dict[str, Any] | None = None
        self.timed: dict[str, Any] | None = None
        self.later: dict[str, Any] | None = None
        self.first_step_us: float | None = None
        self.next_after = 0
        self.after_began = 0

    def boundary(self, phase: int, left: int, count: int) -> None:
        """Before the phases hear of a boundary. left: boundaries left in the phase; count: iterations so far."""
        if phase == WARM:
            if self.first_step_us is None:
                self.first_step_us = age_us()
            if left <= 1:  # the timing phase may begin at this boundary
                self.begin(count)
        elif phase == AFTER and count >= self.next_after and len(self.readings) < _MOST_READINGS:
            self._read_after(count)

    def begin(self, count: int) -> None:
        """The timing phase may begin here."""
        self.began = _threads(count, self.of_numpy)
        self._take("timing", count, again=True)

    def _read_after(self, count: int) -> None:
        if not self.next_after:
            self.after_began, self.next_after = count, count + _FIRST_AFTER
            return
        self._take("after", count)
        self._time_again(count)
        self.next_after = count + (count - self.after_began)

    def _time_again(self, count: int) -> None:
        """Few steps were timed before the window, of a short epoch or slow ones: what its followers do tells more.

        Not the very first of them, which pay for its export.
        """
        if self.timed is None or self.timed["timed_steps"] >= FEW:
            return
        now = _threads(count, self.of_numpy)
        if count - self.after_began > _FIRST_AFTER:
            self.timed = _difference(self.later or now, now)
        else:
            self.later = now

    def timing_ends(self, count: int) -> None:
        """The timing phase is over; asked again where another profiler delays the window."""
        if self.began is not None:
            self.timed = _difference(self.began, _threads(count, self.of_numpy))
            self._take("timed", count, again=True)

    def _take(self, phase: str, count: int, again: bool = False) -> None:
        """One more reading of memory; `again`: instead of the last one of this phase."""
        if again and self.readings and self.readings[-1]["phase"] == phase:
            self.readings.pop()
        self.readings.append({"phase": phase, "step": count, **memory()})

    def record(self, ended: bool) -> dict[str, Any]:
        """The part of run.json. ended: the script is at its end."""
        return {
            "ended": ended,
            "first_step_us": self.first_step_us,
            "age_us": age_us(),
            "memory": list(self.readings),
            **(self.timed or {}),
        }


def memory() -> dict[str, int | None]:
    """Bytes that the process holds, and those of its current device; None where nothing tells."""
    return {"resident_bytes": resident(), **_on_device()}


def resident() -> int | None:
    """Memory of the process alone, without the files that it maps and what it shares with its workers."""
    try:
        with open("/proc/self/statm", "rb") as file:
            fields = file.read().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _on_device() -> dict[str, int | None]:
    """Bytes allocated and reserved on the current CUDA device; None where the script uses none."""
    found: dict[str, int | None] = {"allocated_bytes": None, "reserved_bytes": None}
    if torch.cuda.is_initialized():
        try:
            found["allocated_bytes"] = int(torch.cuda.memory_allocated())
            found["reserved_bytes"] = int(torch.cuda.memory_reserved())
        except Exception as failure:
            let_through(failure)
            return found  # a back end of its own, without these counters
    return found


def _threads(count: int, of_numpy: Sequence[int]) -> dict[str, Any]:
    """CPU time of the loop's thread, the process and its other Python threads, ns; None where the system is silent.

    Other threads go on while this is read, for some ms: the process is read before and after all that is a part of it.
    """
    own = threading.get_ident()
    others = {one.native_id: one for one in threading.enumerate() if one.ident != own and one.native_id}
    return {
        "count": count,
        "wall": time.perf_counter_ns(),
        "process_before": time.process_time_ns(),
        "loop": time.thread_time_ns(),
        "queued": queued_ns(),
        "quota": cores.quota_periods(),
        "children": dict(_children()),
        "numpy": [_cpu_ns(native) for native in of_numpy],
        "others": {native: (cpu, others[native]) for native in others if (cpu := _cpu_ns(native)) is not None},
        "pool": dict(_pool({threading.get_native_id(), *others, *of_numpy})) if of_numpy else {},
        "process_after": time.process_time_ns(),
    }


def _pool(others: set[int]) -> Iterator[tuple[int, int]]:
    """(kernel id, time without a core, ns) of each thread but these: what is left are threads of torch's pool."""
    try:
        running = {int(name) for name in os.listdir("/proc/self/task")}
    except (OSError, ValueError):
        return
    for native in running - others:
        if (queued := queued_ns(f"self/task/{native}")) is not None:
            yield native, queued


def _children() -> Iterator[tuple[int, int]]:
    """(pid, CPU time of its main thread, ns) of each process that the script started by multiprocessing."""
    known = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
    for pid in [getattr(one, "pid", None) for one in list(known)]:
        try:
            with open(f"/proc/{pid}/schedstat", "rb") as file:
                yield int(pid or 0), int(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            continue  # it has ended, or this system is silent


def _cpu_ns(native_id: int) -> int | None:
    """CPU time of a thread of this process by its kernel id: Linux makes clock ids of those, and asks nobody."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return time.clock_gettime_ns((~native_id << 3) | 6)
    except OSError:
        return None  # it has ended


def queued_ns(thread: str = "thread-self") -> int | None:
    """Time in which a thread was ready to run and had no core, ns; this one, or another by its folder in /proc."""
    try:
        with open(f"/proc/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _difference(began: dict[str, Any], ended: dict[str, Any]) -> dict[str, Any]:
    """What the threads did between two readings, µs."""
    queued = ended["queued"] - began["queued"] if None not in (began["queued"], ended["queued"]) else None
    numpy = [both for both in zip(began["numpy"], ended["numpy"], strict=True) if None not in both]
    waited = [since - began["pool"][native] for native, since in ended["pool"].items() if native in began["pool"]]
    frames = thread_frames()
    # This frame would keep itself, and with it the variables of all that called it: a step's losses and their graphs.
    frames.pop(threading.get_ident(), None)
    threads = []
    for native, (cpu_ns, thread) in ended["others"].items():
        before = began["others"].get(native, (0, None))[0]
        threads.append({"name": thread.name, "cpu_us": (cpu_ns - before) / 1e3, **_work(thread, frames)})
    both = began["children"].keys() & ended["children"].keys()
    return {
        "children": len(both),
        "children_cpu_us": sum(ended["children"][pid] - began["children"][pid] for pid in both) / 1e3,
        "timed_steps": ended["count"] - began["count"],
        "timed_us": (ended["wall"] - began["wall"]) / 1e3,
        "loop_cpu_us": (ended["loop"] - began["loop"]) / 1e3,
        "loop_queued_us": queued / 1e3 if queued is not None else None,
        "quota_used_up": used_up(began["quota"], ended["quota"]),
        "process_cpu_us": (ended["process_after"] - began["process_before"]) / 1e3,
        "pool_queued_us": max(waited, default=0) / 1e3 if began["pool"] else None,
        "numpy_cpu_us": sum(after - before for before, after in numpy) / 1e3 if numpy else None,
        "threads": threads,
    }


def used_up(began: tuple[int, int] | None, ended: tuple[int, int] | None) -> float | None:
    """Share of the periods between two readings of a quota in which it was used up."""
    if began is None or ended is None or ended[0] <= began[0]:
        return None
    return (ended[1] - began[1]) / (ended[0] - began[0])


def _work(thread: threading.Thread, frames: dict[int, Any]) -> dict[str, Any]:
    """Which function of the user's the thread runs: the outermost on its stack; nothing for threads of libraries."""
    stack = []
    frame = frames.get(thread.ident or 0)
    while frame is not None:
        stack.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    foreign = foreign_folders()
    for code, now in reversed(stack):
        file = file_of(code, foreign)
        if file:
            return {"file": file, "line": code.co_firstlineno, "now": now or 0, "function": code.co_name}
    return {}


def age_us() -> float | None:
    """Time since the process was started, µs (to a hundredth of a second); None where the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/uptime", "rb") as file:
            up_s = float(file.read().split()[0])
        return max(up_s - ticks / os.sysconf("SC_CLK_TCK"), 0.0) * 1e6
    except (OSError, ValueError, IndexError):
        return None

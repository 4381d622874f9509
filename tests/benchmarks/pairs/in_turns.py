"""Two scripts at the same time, of which one runs at a time: each a second, in turns.

A machine that others use is faster in one minute than in the next: the step times of 72 scripts differed from run to
run by 5.7 % in the median (standard deviation, three batches of fresh scripts, 28 and 29 November 2026). Two that
take turns of a second have the same machine. Whoever has no turn is stopped with all of its processes (SIGSTOP), loader
workers and ranks among them, and the time for which it was stopped is taken out of the ends of its steps.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

TURN_S = 1.0
LOOK_S = 0.01  # how long after its end a script is known to have ended


class Process(Protocol):
    """A script that runs. pid: of its first process;  ended: whether it has, without waiting."""

    pid: int

    def ended(self) -> bool: ...


def run(scripts: Sequence[Process], longest_s: float) -> list[list[tuple[float, float]]]:
    """Runs them to their ends, and says for each when it was stopped: (from, to) in seconds of `perf_counter`.

    Raises TimeoutError after so many seconds, and what `ended` raises; none of them runs on then.
    """
    stopped: list[list[tuple[float, float]]] = [[] for _ in scripts]
    left = dict(enumerate(scripts))
    since = {at: _stop(script) for at, script in left.items()}
    latest = time.monotonic() + longest_s
    try:
        while left:
            for at, script in list(left.items()):
                stopped[at].append((since[at], _signal(script.pid, signal.SIGCONT)))
                if _has_ended(script, TURN_S if len(left) > 1 else longest_s):
                    del left[at]
                else:
                    since[at] = _stop(script)
                if time.monotonic() > latest:
                    raise TimeoutError(f"not ended after {longest_s:.0f} s")
    finally:
        for script in left.values():
            _signal(script.pid, signal.SIGKILL)
    return stopped


def _stop(script: Process) -> float:
    """When it was stopped."""
    _signal(script.pid, signal.SIGSTOP)
    return time.perf_counter()


def _has_ended(script: Process, seconds: float) -> bool:
    """Whether it ends within so many seconds."""
    until = time.monotonic() + seconds
    while not script.ended():
        if time.monotonic() > until:
            return False
        time.sleep(LOOK_S)
    return True


def without(ends: Sequence[float], stopped: Sequence[tuple[float, float]]) -> list[float]:
    """When steps would have ended if the process had not been stopped."""
    return [end - sum(to - since for since, to in stopped if to <= end) for end in ends]


def _signal(pid: int, number: int) -> float:
    """To a process and all that it started, those first that started others; what has ended meanwhile is left out.

    When the first of them had not got it yet.
    """
    every = (pid, *_below(pid))
    before = time.perf_counter()
    for one in every:
        with suppress(ProcessLookupError):
            os.kill(one, number)
    return before


def _below(pid: int) -> list[int]:
    """Processes that a process started, and those that these started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text("utf-8").rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found, open_ = [], [pid]
    while open_:
        mine = parents.get(open_.pop(), [])
        found += mine
        open_ += mine
    return found

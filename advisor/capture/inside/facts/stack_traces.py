"""What a stack trace costs in this process, where anomaly detection stores one for each node of autograd's graph.

Formatting one takes time for each frame on the stack and for each file that the frames are of. It is timed on a thread
of our own, whose stack is short, then with more frames, then with frames of more files.
"""

from __future__ import annotations

import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time_ns
from typing import Any

import torch

# Formatted so often each time; calls that are added: 2 ms of CPU time, once.
_TIMES, _DEEPER = 12, 16
# Files of torch that each process has loaded.
_FILES = (
    "nn.modules.module",
    "nn.modules.container",
    "nn.modules.linear",
    "nn.functional",
    "optim.optimizer",
    "autograd",
)
# On our thread's stack: two functions of this file.
_FRAMES, _OWN_FILES = 2, 1

Call = Callable[[], Any]


def cost() -> dict[str, float] | None:
    """CPU time of formatting a stack, of each of its frames and of each of their files, µs; None if none is stored."""
    if not torch.is_anomaly_enabled():
        return None
    # What autograd calls as it makes a node.
    from torch.fx.traceback import format_stack

    files = [module.__file__ for name in _FILES if (module := sys.modules.get(f"torch.{name}")) and module.__file__]
    plain = _on_a_thread(format_stack, [])
    deeper = _on_a_thread(format_stack, [_through(__file__, "one"), _through(__file__, "other")] * (_DEEPER // 2))
    wider = _on_a_thread(format_stack, [_through(one, "one") for one in files])
    if not (plain and deeper and wider):
        return None
    frame_us = max(deeper - plain, 0.0) / _DEEPER
    file_us = max((wider - plain) / len(files) - frame_us, 0.0)
    return {"us": max(plain - _FRAMES * frame_us - _OWN_FILES * file_us, 0.0), "frame_us": frame_us, "file_us": file_us}


def _through(file: str, name: str) -> Callable[[Sequence[Any], Call], Any]:
    """A function that is of a file, as its stack trace says: it calls the next. Equal ones in a row are one text."""
    names: dict[str, Any] = {}
    exec(compile(f"def {name}(rest, call): return rest[0](rest[1:], call) if rest else call()", file, "exec"), names)
    found: Callable[[Sequence[Any], Call], Any] = names[name]
    return found


def _on_a_thread(format_stack: Call, way: Sequence[Any]) -> float | None:
    """The median CPU time below these functions, µs."""
    times: list[int] = []
    over = allocate_lock()
    over.acquire()

    def run() -> None:
        try:
            (way[0](way[1:], timed) if way else timed())
        finally:
            over.release()

    def timed() -> None:
        format_stack()  # the files are read now, if they were not
        for _ in range(_TIMES):
            began_ns = thread_time_ns()
            format_stack()
            times.append(thread_time_ns() - began_ns)

    start_new_thread(run, ())
    over.acquire()
    return median(times) / 1e3 if times else None

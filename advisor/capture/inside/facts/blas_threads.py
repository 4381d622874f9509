"""Threads of the library for matrices that NumPy calls, which keeps a pool of its own beside torch's.

Standard library only. NumPy's wheels bring OpenBLAS, whose function is asked by the names that wheels, distributions
and conda give it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterable

_ASKED = tuple(
    f"{prefix}openblas_get_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "_64", "")
)


def count(maps: str = "/proc/self/maps") -> int | None:
    """How many threads NumPy's OpenBLAS uses; None where NumPy is not loaded, or calls another library.

    maps: where the system lists the files that this process has in memory.
    """
    if "numpy" not in sys.modules:
        return None
    try:
        with open(maps, encoding="utf-8", errors="replace") as file:
            paths = {line.split(None, 5)[5].strip() for line in file if "openblas" in line}
    except OSError:
        return None
    return _ask(sorted(paths))


def native_ids() -> tuple[int, ...]:
    """Kernel ids of the threads that this OpenBLAS has started; empty where they cannot be told from others.

    Asked before torch has run an operator: what runs then beside the main thread and those of Python is this pool,
    which has one thread less than it uses.
    """
    started = (count() or 1) - 1
    try:
        running = {int(name) for name in os.listdir("/proc/self/task")}
    except (OSError, ValueError):
        return ()
    native = running - {one.native_id for one in threading.enumerate()}
    return tuple(sorted(native)) if started and len(native) == started else ()


def _ask(paths: Iterable[str]) -> int | None:
    for path in paths:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for name in _ASKED:
            if asked := getattr(library, name, None):
                return int(asked())
    return None

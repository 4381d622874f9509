"""How a process of our own that reads large traces handles memory and threads."""

from __future__ import annotations

import os
import sys

# Columns of a large trace are freed and asked for again all the time; handing so much back to the system each time and
# having it cleared anew took half a second of eight on 1 GB of trace. The most that is kept is this.
KEPT_BYTES = 256 << 20
# The largest that glibc allows for pieces that it hands back at once.
LARGEST_PIECE_BYTES = 32 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # glibc's numbers of these switches


# Read when numpy is imported. Pages of 2 MB are cleared whole, also those that a column ends in: a third of a second of
# eight on 1 GB of trace. Nothing here multiplies matrices, and threads of BLAS that wait for work spin meanwhile.
NUMPY_SETTINGS = {"NUMPY_MADVISE_HUGEPAGE": "0", "OPENBLAS_NUM_THREADS": "1"}


def import_numpy() -> None:
    """Imports numpy with these settings, where nobody has imported it yet; the environment is as before then."""
    added = NUMPY_SETTINGS.keys() - os.environ.keys()
    os.environ.update({name: NUMPY_SETTINGS[name] for name in added})
    try:
        import numpy  # noqa: F401
    finally:
        for name in added:
            del os.environ[name]


def keep_freed_memory() -> bool:
    """Lets this process keep some freed memory for what it asks for next. For processes of our own only.

    False where the C library is not glibc: nothing is changed then.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    # One arena: a second thread takes what the first has freed instead of keeping its own, 3 % at 200 MB of trace.
    wanted = {_TRIM_THRESHOLD: KEPT_BYTES, _MMAP_THRESHOLD: LARGEST_PIECE_BYTES, _ARENA_MAX: 1}
    switched = [mallopt(switch, value) for switch, value in wanted.items()]
    return all(switched)


# Set by `share_cores`: how many processes like this one share the cores.
_SHARED_BY = "_TORCH_ADVISOR_SHARED_BY"


def share_cores(processes: int) -> None:
    """This process is one of so many that do the same: `cores` counts its part."""
    os.environ[_SHARED_BY] = str(processes)


def cores() -> int:
    """How many processor cores this process may run on, those left out that others like it take."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(here // int(os.environ.get(_SHARED_BY, "1")), 1)

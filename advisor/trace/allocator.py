"""What the C library does with memory that was freed."""

from __future__ import annotations

import sys

# Columns of a large trace are freed and asked for again all the time; handing so much back to the system each time and
# having it cleared anew took half a second of eight on 1 GB of trace. The most that is kept is this.
KEPT_BYTES = 256 << 20
# The largest that glibc allows for pieces that it hands back at once.
LARGEST_PIECE_BYTES = 32 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's numbers of the two switches


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
    switched = [mallopt(_TRIM_THRESHOLD, KEPT_BYTES), mallopt(_MMAP_THRESHOLD, LARGEST_PIECE_BYTES)]
    return all(switched)

"""The frames in which threads are, without what can make the script wait for ever."""

from __future__ import annotations

import gc
import sys
from types import FrameType


def thread_frames() -> dict[int, FrameType]:
    """What `sys._current_frames()` returns: the topmost frame of each thread, by its identifier.

    It makes objects while it holds a lock of the interpreter (seen in CPython 3.11). Where that starts a garbage
    collection, what is freed may let go of the GIL, as a tensor does; a thread that ends then takes the GIL and waits
    for the lock, and all threads stand still (python/cpython#106883). So nothing is collected meanwhile.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if was_on:
            gc.enable()

"""The end of a thread, told on the thread itself: a profiler that was started there can be stopped nowhere else."""

from __future__ import annotations

# The threading module's own may have been replaced by a library of green threads.
from _thread import _local, get_ident
from collections.abc import Callable


class ThreadEnd:
    """Calls when the thread that watches it ends; once for a thread, and not for one that ends with the process."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.of_thread = _local()

    def watch(self) -> None:
        """From now on the end of this thread is told."""
        if not hasattr(self.of_thread, "last"):
            self.of_thread.last = _Last(self.call)


class _Last:
    """What a thread lets go of when it ends."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.thread = get_ident()

    def __del__(self) -> None:
        if get_ident() == self.thread:  # the interpreter lets go of what daemon threads had when it ends
            self.call()

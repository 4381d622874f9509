"""A time window for scripts in which no step can be told: no backward, no optimizer, no loader that feeds one.

The profiler records the thread that starts it, so the main thread must do it, between two of its own instructions. A
waiting thread only watches the clock and asks the interpreter to make that call.
"""

from __future__ import annotations

import ctypes
import sys
import time
from _thread import start_new_thread
from collections.abc import Callable
from typing import Any

# Silence after `import torch` before the first window, its length, and how many are tried, each after twice the wait:
# a script may spend its first seconds on imports and data. The largest trace is kept.
WAIT_S, LENGTH_S, MOST = 1.0, 0.5, 5

_Call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class TimeWindow:
    """Opens a window after a time without steps. `needed` says whether one is still wanted."""

    def __init__(self, needed: Callable[[], bool], start: Callable[[], None], stop: Callable[[], None]) -> None:
        self.needed = needed
        self.start = self._on_main(start)
        self.stop = self._on_main(stop)
        self.over = False

    def watch(self) -> None:
        """Begins to wait. The thread is no threading.Thread: the script's own list of threads stays as it was."""
        start_new_thread(self._wait, ())

    def _wait(self) -> None:
        pause = WAIT_S
        for _ in range(MOST):
            if not self._sleep(pause):
                return
            self._ask(self.start)
            if not self._sleep(LENGTH_S):
                return
            self._ask(self.stop)
            pause *= 2

    def _sleep(self, seconds: float) -> bool:
        """Waits; False when no window is needed any more."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            if self.over or sys.is_finalizing() or not self.needed():
                return False
        return True

    @staticmethod
    def _ask(call: Any) -> None:
        ctypes.pythonapi.Py_AddPendingCall(call, None)

    @staticmethod
    def _on_main(call: Callable[[], None]) -> Any:
        def pending(_argument: Any) -> int:
            call()
            return 0

        return _Call(pending)

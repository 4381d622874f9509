"""Signals that would end the script inside a window without a word: the window is kept first, then they do."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

# SIGINT ends a script through KeyboardInterrupt and atexit; these end it on the spot unless a handler is there.
_DEADLY = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU") if hasattr(signal, name)
)


class Exits:
    """Handlers for deadly signals, in place only while a window is open and only where the script has none."""

    def __init__(self, keep: Callable[[], None]) -> None:
        self.keep = keep
        self.pid = os.getpid()
        self.placed: list[int] = []

    def watch(self) -> None:
        """Places the handlers; only the main thread may."""
        if self.placed or threading.current_thread() is not threading.main_thread():
            return
        for number in _DEADLY:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._handle)
                self.placed.append(number)

    def release(self) -> None:
        """Takes away what still is ours."""
        placed, self.placed = self.placed, []
        if threading.current_thread() is not threading.main_thread():
            return
        for number in placed:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)

    def _handle(self, number: int, _frame: Any) -> None:
        if os.getpid() == self.pid:
            self.keep()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def when_worker_ends(call: Callable[[], None]) -> None:
    """Calls at the end of a process that multiprocessing forked: such a one runs no atexit functions."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, call, exitpriority=0)

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
from types import FrameType
from typing import Any

# Silence after `import torch` before the first window and between windows, and the length of each: a script may spend
# its first seconds on imports, data and compilation. The largest trace is kept. A window that is full ends early.
WAITS_S, LENGTH_S = (1.0, 1.0, 2.0, 4.0, 8.0, 16.0), 0.5

# The function that is on the stack for as long as torch.compile generates code of another, with its module.
_COMPILER = ("torch._dynamo.convert_frame", "_compile")
# Where a process waits until another one, which it starts, is there: a fork server may load the script first.
_STARTER = ("multiprocessing.process", "start")

_Call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class TimeWindow:
    """Opens a window after a time without steps.

    needed says whether one is still wanted, full whether the open one holds enough.

    start and stop run on the main thread and return False where this is not the moment (inside a backward); they are
    asked again then.
    """

    def __init__(
        self,
        needed: Callable[[], bool],
        start: Callable[[], bool],
        stop: Callable[[], bool],
        full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.needed = needed
        self.full = full
        self.start = self._on_main(start)
        self.stop = self._on_main(stop)
        self.answered = False
        self.asked: Any = None
        self.queued = False

    def watch(self) -> None:
        """Begins to wait. The thread is no threading.Thread: the script's own list of threads stays as it was."""
        start_new_thread(self._wait, ())

    def _wait(self) -> None:
        for pause in WAITS_S:
            if not (self._sleep(pause) and self._ask(self.start) and self._record() and self._ask(self.stop)):
                return

    def _record(self) -> bool:
        """Waits for as long as a window lasts; False when none is needed any more."""
        end = time.monotonic() + LENGTH_S
        while time.monotonic() < end and not self.full():
            if not self._sleep(0.05):
                return False
        return True

    def _sleep(self, seconds: float) -> bool:
        """Waits; False when no window is needed any more."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            if sys.is_finalizing() or not self.needed():
                return False
        return True

    def _ask(self, call: Any) -> bool:
        """Has the main thread make the call, again until it did; False when no window is needed any more.

        One call is queued at a time: CPython 3.11 never leaves the first instruction of a traced function (a debugger,
        coverage) that it enters inside a pending call while another one waits.
        """
        self.answered, self.asked = False, call
        while not self.answered:
            if not self.queued:
                self.queued = True
                if ctypes.pythonapi.Py_AddPendingCall(call, None):
                    self.queued = False  # the queue was full
            if not self._sleep(0.1):
                return False
        return True

    def _on_main(self, call: Callable[[], bool]) -> Any:
        def pending(_argument: Any) -> int:
            # A slow main thread may come to a call only after the next was asked for.
            try:
                if not self.answered and self.asked is thunk and not _is_busy(thunk is self.start):
                    self.answered = call()
            finally:
                self.queued = False
            return 0

        thunk = _Call(pending)
        return thunk


def _is_busy(starting: bool) -> bool:
    """Whether this thread is importing a part of torch: a profiler would find that part half made.

    starting: whether the thread is compiling counts, too. Compiled collectives end the process (torch 2.15) where a
    profiler looks at what the compiler tries them out with. And whether it starts a process, which may be the one that
    does the work.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == "<module>" and module.partition(".")[0] == "torch":
            return True
        if starting and (module, frame.f_code.co_name) in (_COMPILER, _STARTER):
            return True
        frame = frame.f_back
    return False

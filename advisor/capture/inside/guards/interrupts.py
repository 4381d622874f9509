"""The script's signal handlers, and work of ours that they would break into.

Python runs a handler wherever its main thread stands when the signal comes, and that may be between two lines of ours:
a step that is given a second, with an alarm, may well run out of it while a trace is kept. What its handler raises is
the script's, and so is the moment: our work is whole before it.
"""

from __future__ import annotations

import signal
import sys
import threading

# The public one makes an Enum of each answer: 31 of them in every profiled step.
from _signal import getsignal  # type: ignore[import-not-found]
from types import FrameType, TracebackType
from typing import Any

from .signals import Exits

# Real-time signals come after these, and Python scripts use none.
_STANDARD = range(1, min(signal.NSIG, 32))


class Interrupts:
    """Handlers that wait for the end of our work. placed: those in whose place ours stand, by signal."""

    def __init__(self) -> None:
        self.placed: dict[int, Any] = {}
        self.came: list[int] = []

    def hold(self, long: bool) -> None:
        """Handlers of the script wait where our work is long; not Ctrl-C. Only the main thread is broken into."""
        if not long or self.placed or threading.current_thread() is not threading.main_thread():
            return
        for number in _STANDARD:
            handler = getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler and not _ours(handler):
                self.placed[number] = handler
                signal.signal(number, self._note)

    def release(self) -> None:
        """The script's handlers stand again, and those whose signal came run now: what they raise is raised here."""
        placed, self.placed = self.placed, {}
        came, self.came = self.came, []
        for number, handler in placed.items():
            if getsignal(number) == self._note:
                signal.signal(number, handler)
        frame = sys._getframe()
        for number in dict.fromkeys(came):  # a signal that comes twice before it is handled is one, as for the system
            placed[number](number, frame)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.came.append(number)


def _ours(handler: Any) -> bool:
    return getattr(handler, "__func__", None) is Exits._handle


def let_through(failure: BaseException) -> None:
    """Raises it once more where a signal's handler raised it; returns where a call of ours failed.

    A handler is told by what no other function has: among its arguments the very frame that it interrupted.
    """
    at: TracebackType | None = failure.__traceback__
    while at is not None:
        if _handles(at.tb_frame):
            raise failure
        at = at.tb_next


def _handles(frame: FrameType) -> bool:
    """Whether this is a handler's frame."""
    interrupted = frame.f_back
    if interrupted is None:
        return False
    return any(
        value is interrupted or (isinstance(value, tuple) and any(one is interrupted for one in value))
        for value in list(frame.f_locals.values())
    )

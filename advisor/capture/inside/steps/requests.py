"""When another window is due after the first: every so many steps, when somebody asks, when steps became slower, when
the script trains in another loop.

Nothing here touches torch. Asking goes by a file in the folder of the capture (`advisor attach`), or by SIGUSR1 where
that signal would end the script, since it has no handler for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from statistics import median
from typing import Any

from .step_trend import StepTrend

EVERY, ASKED, SLOWER, ELSEWHERE = "every", "asked", "slower", "elsewhere"

# Between two looks for a request: a look is a call to the system of a few microseconds.
_LOOK_NS = 250_000_000
# Steps are slower where all of the last stretches, each of so much time at least, took so many times what they did
# before: 25 % is more than what the clock of a CPU and its neighbours make of equal steps for seconds.
_SLOWER, _STRETCHES, _LEAST_NS = 1.25, 3, 1_000_000_000
# Windows that are opened for that by themselves.
_MOST_SLOWER = 3
# Windows for another loop: a script that enters one after another (stages of a curriculum) shows in two what its stages
# are like.
_MOST_LOOPS = 2


class Requests:
    """What is asked of one rank. Ranks of a job wait for each other, so there only `every` counts: they share it.

    settings: `folder` (of the capture) and `every`, steps between the beginnings of two windows, 0 for none.
    moved: whether training has moved to another loop since it was asked last.
    """

    def __init__(self, settings: dict[str, Any], trend: StepTrend, moved: Callable[[], bool]) -> None:
        self.every = int(settings.get("every") or 0)
        self.path = os.path.join(settings["folder"], f"ask-{os.getpid()}")
        self.trend = trend
        self.moved = moved
        self.alone = False
        self.next = 0
        self.looked_ns = 0
        self.signalled = False
        self.placed = False
        self.by_file = False
        self.level_ns = 0.0  # what an ordinary step was when it was first known, or at the latest window for that
        self.closed = 0  # stretches of the trend when it was looked at last
        self.slower = 0
        self.loops = 0
        self.begun = False
        self.since = 0  # stretches of the trend when training moved to its loop

    def begin(self, count: int, alone: bool) -> None:
        """The first window is over, after so many iterations. alone: the job has one rank."""
        self.alone, self.begun = alone, True
        if self.every:
            self.next = (count // self.every + 1) * self.every
        if alone:
            self._place()

    def _place(self) -> None:
        """Takes SIGUSR1 where the script has left it to the system, which would end the process."""
        number = getattr(signal, "SIGUSR1", None)
        main = threading.current_thread() is threading.main_thread()
        if number is not None and main and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, self._asked)
            self.placed = True

    def _asked(self, _number: int, _frame: Any) -> None:
        self.signalled = True

    def release(self) -> None:
        """Gives SIGUSR1 back, where it is still ours."""
        main = threading.current_thread() is threading.main_thread()
        if self.placed and main and signal.getsignal(signal.SIGUSR1) == self._asked:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        self.placed = False

    def due(self, count: int, now_ns: int) -> str:
        """Why a window is due at this boundary, after so many iterations; empty where none is."""
        if self.next and count >= self.next:
            return EVERY
        if not self.alone:
            return ""
        if now_ns - self.looked_ns >= _LOOK_NS:
            self.looked_ns = now_ns
            self.by_file = os.path.exists(self.path)
        if self.signalled or self.by_file:
            return ASKED
        if self.moved():
            self.level_ns, self.since = 0.0, self.trend.closed + 1  # the next one may hold steps of both
            if self.loops < _MOST_LOOPS:
                return ELSEWHERE
        return self._of_trend()

    def taken(self, why: str, count: int) -> None:
        """A window was opened for that reason, or could not be."""
        if why == EVERY:
            self.next = (count // self.every + 1) * self.every
        self.slower += why == SLOWER
        self.loops += why == ELSEWHERE
        if why == ASKED:
            self.signalled = self.by_file = False
            if os.path.exists(self.path):
                os.unlink(self.path)

    def _of_trend(self) -> str:
        """What the latest stretch tells; looked at once for each of these."""
        if self.trend.closed == self.closed:
            return ""
        self.closed = self.trend.closed
        return SLOWER if self._is_slower() else ""

    def _is_slower(self) -> bool:
        """Whether all of the latest stretches are."""
        trend = self.trend
        if self.slower >= _MOST_SLOWER or self.closed < self.since + _STRETCHES:
            return False
        latest = trend.latest_ns(_STRETCHES)
        if len(latest) < _STRETCHES or min(latest) * trend.size < _LEAST_NS:
            return False
        found = 0 < _SLOWER * self.level_ns <= min(latest)
        if found or not self.level_ns:
            self.level_ns = median(latest)
        return found

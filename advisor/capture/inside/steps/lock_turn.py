"""How soon a thread that samples stacks gets Python's lock.

A thread that wakes up while another one runs Python waits `sys.getswitchinterval()` seconds for the lock, 5 ms unless
the script changed it, before it asks for it. Until then the other one has often given the lock away by itself, in an op
that computes without it; what would be sampled is that op, and of Python that takes less than 5 ms at a time nothing.
"""

from __future__ import annotations

import sys
import time
from _thread import get_ident
from types import FrameType

from ..guards.hooks import in_children

# Two cores of an AMD EPYC, Python 3.11, loops of 2 ms of Python (20 % of the time) between products of 6 ms, 900
# samples each: with 5 ms none saw these loops, with 1 ms 48 % did, with 0.1 ms 24 %, with 0.01 ms 20 %. Calls of 0.3
# ms (26 % of the time) between products of 0.8 ms: with 0.1 ms 9 % of 480 saw them, with 0.01 ms 15 %: a wait ends
# 0.06 ms late.
_SOON_S = 0.00001
# Such a wait wakes up some 15,000 times a second while C code keeps the lock. One that took more than two samples do
# of CPU time is followed by so many ordinary ones: calls of that length are seen by these as well.
_DEAR_NS, _ORDINARY = 1_000_000, 16


class LockTurn:
    """Sleeps, and waits 10 µs for the lock rather than 5 ms where no other thread is concerned.

    The time is one for all threads of the process, so it is short only while this thread sleeps, and only where
    the script's other threads stood still between two looks at them: busy ones would hand the lock to and fro.
    """

    def __init__(self) -> None:
        self._others: dict[int, tuple[int, int]] | None = None
        self._still = False
        self._usual_s = 0.0  # what was set before; 0 while that is set
        self._ours_s = 0.0
        self._ordinary = 0  # sleeps to come that wait as any thread does
        in_children(self._give_back)  # a process that is forked meanwhile has the script's own time

    def seen(self, frames: dict[int, FrameType], watched: int) -> None:
        """The frames of all threads at one sample of the thread `watched`, called on the thread that samples."""
        both = watched, get_ident()
        others = {ident: (id(at), at.f_lasti) for ident, at in frames.items() if ident not in both}
        self._still = others == self._others
        self._others = others

    def sleep(self, seconds: float) -> None:
        """Sleeps, and has the lock when it returns."""
        if not self._still or self._ordinary:
            self._ordinary = max(self._ordinary - 1, 0)
            time.sleep(seconds)
            return
        began_ns = time.thread_time_ns()
        self._usual_s = sys.getswitchinterval()
        sys.setswitchinterval(_SOON_S)
        self._ours_s = sys.getswitchinterval()  # whole microseconds of what was asked for
        try:
            time.sleep(seconds)
        finally:
            self._give_back()
        if time.thread_time_ns() - began_ns > _DEAR_NS:
            self._ordinary = _ORDINARY

    def _give_back(self) -> None:
        if self._usual_s and sys.getswitchinterval() == self._ours_s:  # else the script has set another
            sys.setswitchinterval(self._usual_s)
        self._usual_s = 0.0

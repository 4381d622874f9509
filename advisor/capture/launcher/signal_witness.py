"""Tells a signal that was sent to the whole process group from one that was sent to this process alone.

Who sends to a group (a terminal, `kill -INT -PGID`, a CI runner) reaches the script too, and passing the signal on
would interrupt it twice; who sends to us alone (`docker stop`) expects us to pass it on. The kernel does not say which
it was. So a process that does nothing stands in our group with every signal blocked: what was sent to all is pending
there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# A group's members get its signal one after the other, within one system call of the sender: long enough for that.
_GRACE_S: Final = 0.02


class Witness:
    """A member of our process group that keeps what is sent to it. Linux only: elsewhere it has seen nothing."""

    def __init__(self) -> None:
        self._pid = 0
        self._line = -1
        self._stand_in()

    def saw(self, number: int) -> bool:
        """Whether the signal `number`, which has just reached us, was sent to our whole group."""
        if not self._pid:
            return False
        until = time.monotonic() + _GRACE_S
        while not (seen := bool(_pending(self._pid) >> (number - 1) & 1)) and time.monotonic() < until:
            time.sleep(0.001)
        if seen:  # It stays pending there: the next signal needs a witness that has seen none.
            self.leave()
            self._stand_in()
        return seen

    def leave(self) -> None:
        """Ends the process."""
        if self._pid:
            os.close(self._line)
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
        self._pid = 0

    def _stand_in(self) -> None:
        if not Path("/proc/self/status").exists():
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        ours, self._line = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            self._pid = 0
            os.close(self._line)
        else:
            if self._pid == 0:
                _stand(ours)
        finally:
            os.close(ours)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stand(line: int) -> None:
    """Waits until the other end of `line` is closed, by us or by our death, and holds nothing else open meanwhile."""
    with contextlib.suppress(BaseException):
        os.closerange(0, line)
        os.closerange(line + 1, 4096)
        os.read(line, 1)
    os._exit(0)


def _pending(pid: int) -> int:
    """The signals that wait for the process, as a mask: bit 0 is signal 1."""
    mask = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("SigPnd:", "ShdPnd:")):
                mask |= int(line.split()[1], 16)
    return mask


@contextlib.contextmanager
def witness() -> Iterator[Witness]:
    """A witness for as long as the block runs."""
    one = Witness()
    try:
        yield one
    finally:
        one.leave()

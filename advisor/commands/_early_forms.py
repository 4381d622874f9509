"""Reduced traces of a distributed job while its script still runs: what is left of a job that is killed before its end.

A process of its own makes them, once, on a core that is idle: of the lowest priority, with one thread, bounded in CPU
time and memory. When the script has ended, they are made again, with what is known only then.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from advisor.capture.launcher.publish import Publisher

# After the first trace is there: by then the ranks of this machine, which go in step, have left theirs.
_WAIT_S: Final = 30.0
# Reading a trace of 1 GB and all that is computed of it takes some seconds; a job's ranks on one machine are some ten.
_MOST_CPU_S: Final = 600
_GRACE_S: Final = 2.0


class EarlyForms:
    """Begins once, at the first look after `wait_s` at which a core is idle; ends with the script.

    words: options of `advisor reduce` that choose rules
    """

    def __init__(self, words: Sequence[str], wait_s: float = _WAIT_S) -> None:
        self.words = words
        self.wait_s = wait_s
        self._ready: float | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def look(self, publisher: Publisher) -> None:
        """Called now and then while the script runs."""
        if self._process is not None or not publisher.published:
            return
        now = time.monotonic()
        self._ready = self._ready or now + self.wait_s
        if now < self._ready:
            return
        self._ready = now + self.wait_s
        home = publisher.home()
        if home is not None and _of_several_ranks(home) and a_core_is_idle():
            with suppress(OSError):  # what cannot be started now is made at the end
                self._process = self._started(home)

    def _started(self, home: Path) -> subprocess.Popen[bytes]:
        # No signal of the script's terminal reaches it.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(home), *self.words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self) -> None:
        """The script has ended, and the reduced traces are about to be made anew."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)  # so that no half file is left
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def beside(publisher: Publisher, words: Sequence[str]) -> Iterator[Callable[[], None]]:
    """What is to be called now and then while the script runs: publishes what is new, and begins to reduce it."""
    early = EarlyForms(words)

    def look() -> None:
        publisher.look()
        early.look(publisher)

    try:
        yield look
    finally:
        early.end()


def _of_several_ranks(home: Path) -> bool:
    try:
        ranks = json.loads((home / "run.json").read_bytes())["ranks"]
        return any(rank["world_size"] > 1 for rank in ranks)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def a_core_is_idle() -> bool:
    """Whether, beside all that ran here in the last minute, one more process finds a core that nobody uses."""
    if not hasattr(os, "getloadavg") or not hasattr(os, "sched_getaffinity"):
        return False
    return os.getloadavg()[0] + 1 <= min(len(os.sched_getaffinity(0)), _quota())


def _quota() -> float:
    """Cores that a container may use at once."""
    with suppress(OSError, ValueError):
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return float(most) / float(period)
    return float("inf")  # "max", or no such file


def main(words: Sequence[str]) -> int:
    """Reduces the traces in a folder, of the lowest priority; 1 where there is not memory enough."""
    import resource

    from advisor.engine.worker_count import free_memory_bytes, needed_bytes, text_bytes
    from advisor.trace.read.allocator import share_cores

    # Whoever waits for the script has blocked the signals that it passes on.
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.nice(19)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
    largest = max((text_bytes(path) for path in Path(words[0]).glob("trace-rank*")), default=0)
    free = free_memory_bytes()
    if free is not None and 2 * needed_bytes(largest) > free:
        return 1
    share_cores(os.cpu_count() or 1)
    from advisor.cli import main as command

    return command(["reduce", words[0], "-o", words[0], "--workers", "1", "-q", *words[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

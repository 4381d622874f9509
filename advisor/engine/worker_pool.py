"""Processes that answer one request after the other over pipes: each has a time limit, and none outlives the pool.

Requests and answers are bytes, which the two ends make and read as structs of their own: nothing is unpickled but the
name of the function that serves.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

MORE = b"r"
# How long a process may take to end by itself once its pipe is closed.
_GRACE_S = 0.2


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a request: bytes of the process, or why none did."""

    index: int
    data: bytes
    failed: str = ""


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    index: int = -1  # of its request, -1 while it has none
    ends: float = 0.0  # when its time is over


def answers(
    serve: Callable[[Connection, int], None],
    hello: bytes,
    requests: Sequence[bytes],
    limits_s: Sequence[float],
    workers: int,
) -> Iterator[Answer]:
    """Answers as they come. Those that begin with MORE are followed by others to the same request.

    serve: run in each process, with its end of a pipe and the number of processes; it is sent `hello` first
    limits_s: how long each request may take
    """
    waiting = deque(enumerate(requests))
    crew: dict[Connection, _Worker] = {}
    most = max(min(workers, len(requests)), 1)
    try:
        while waiting or any(one.index >= 0 for one in crew.values()):
            while waiting and len(crew) < most:
                one = _started(serve, hello, most)
                crew[one.pipe] = one
                _hand(one, waiting, limits_s)
            yield from _heard(crew, waiting, limits_s)
            yield from _overdue(crew, limits_s)
    finally:
        _end(list(crew.values()))


def _started(serve: Callable[[Connection, int], None], hello: bytes, processes: int) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, processes), daemon=True)
    with _without_interrupts():
        process.start()
    theirs.close()
    one = _Worker(process, ours)
    _send(one, hello)
    return one


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """What is started in here never hears Ctrl-C: who started it does, and ends it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # Python's own helper: when it is started later, it lets interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send(one: _Worker, data: bytes) -> None:
    with suppress(OSError):  # it has ended: its pipe says so when it is read
        one.pipe.send_bytes(data)


def _hand(one: _Worker, waiting: deque[tuple[int, bytes]], limits_s: Sequence[float]) -> None:
    """The next request, where there is one."""
    one.index = -1
    if waiting:
        one.index, request = waiting.popleft()
        one.ends = time.monotonic() + limits_s[one.index]
        _send(one, request)


def _heard(
    crew: dict[Connection, _Worker], waiting: deque[tuple[int, bytes]], limits_s: Sequence[float]
) -> Iterator[Answer]:
    """What processes say, until one has said something or the next time limit is over."""
    busy = [one for one in crew.values() if one.index >= 0]
    patience = max(min(one.ends for one in busy) - time.monotonic(), 0.0)
    for pipe in connection.wait([one.pipe for one in busy], patience):
        one = crew[pipe]  # type: ignore[index]
        try:
            data = one.pipe.recv_bytes()
        except (EOFError, OSError):
            del crew[one.pipe]
            one.process.join(_GRACE_S)  # so that its own status is known
            _end([one])
            yield Answer(one.index, b"", f"the process that read it ended ({_status(one.process)})")
            continue
        index = one.index
        if data[:1] != MORE:
            _hand(one, waiting, limits_s)
        yield Answer(index, data)


def _status(process: BaseProcess) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        kill = -code == getattr(signal, "SIGKILL", 9)
        return f"signal {-code}{', possibly out of memory; use fewer --workers' if kill else ''}"
    return f"status {code}"


def _overdue(crew: dict[Connection, _Worker], limits_s: Sequence[float]) -> Iterator[Answer]:
    """Ends processes whose time is over."""
    now = time.monotonic()
    for one in [one for one in crew.values() if one.index >= 0 and one.ends <= now]:
        del crew[one.pipe]
        _end([one], grace_s=0.0)
        yield Answer(one.index, b"", f"not read within {limits_s[one.index]:.0f} s; raise --timeout")


def _end(workers: Sequence[_Worker], grace_s: float = _GRACE_S) -> None:
    """Ends processes: those that wait by closing their pipes, others by force."""
    for one in workers:
        one.pipe.close()
        if one.index >= 0:
            one.process.kill()
    for one in workers:
        one.process.join(grace_s)
        if one.process.is_alive():
            one.process.kill()
            one.process.join()

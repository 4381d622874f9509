"""Requests answered by workers of dask: one task each, bytes in and bytes out, as `worker_pool` does on one machine.

Dask pickles the name of the function and ships bytes; what they hold is ours, and read as structs. A task whose worker
is lost, dask starts again by itself; one that fails or takes too long is tried once more on another worker.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.engine import dask_task
from advisor.engine.dask_task import OTHER_VERSIONS, Hello
from advisor.engine.rank_files import Asked
from advisor.engine.rank_process import FAILED, READ
from advisor.engine.worker_pool import Answer
from advisor.errors import InputError, UsageError

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_S = 10.0
# Closing waits for answers of a scheduler that may be gone.
_CLOSE_S = 1.0
_TRIES = 2
_SCHEMES = ("tcp://", "tls://", "ucx://", "ws://", "wss://")


def address_in(path: Path) -> str:
    """The address in a file that `dask scheduler --scheduler-file` wrote. Raises UsageError where there is none."""
    try:
        found = json.loads(path.read_bytes())["address"]
    except OSError as failure:
        raise UsageError(f"--scheduler-file {path}: cannot be read ({failure.strerror})") from failure
    except (ValueError, KeyError, TypeError) as failure:
        text = "not what `dask scheduler --scheduler-file` writes: no address in it"
        raise UsageError(f"--scheduler-file {path}: {text}") from failure
    return str(found)


def answers(scheduler: str, asked: Asked, requests: Sequence[bytes], limit_s: float) -> Iterator[Answer]:
    """Answers as they come, as of `worker_pool.answers`.

    limit_s: how long a request may take, and how long all may wait for a worker to take the next one
    Raises InputError, one line, where no scheduler answers, or a worker is of other versions.
    """
    with _connected(scheduler) as client:
        here = dask_task.versions()
        topic = f"torch-advisor-{uuid.uuid4().hex}"
        _check_scheduler(client, scheduler, here)
        hello = msgspec.msgpack.encode(Hello(asked, here, topic))
        yield from _Tasks(client, scheduler, hello, requests, limit_s).answers(topic)


@contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    """A client, which takes its tasks along when it ends."""
    if not scheduler.startswith(_SCHEMES):
        raise UsageError(f"--scheduler {scheduler}: not an address such as tcp://host:8786")
    try:
        import distributed
    except ImportError:
        text = "needs the package `distributed`; pip install 'torch-advisor[cluster]'"
        raise UsageError(f"--scheduler {text}") from None
    # What goes wrong is said once, in our words.
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "distributed"]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore", distributed.versions.VersionMismatchWarning)
    client = _client(scheduler)
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=_CLOSE_S)


def _client(scheduler: str) -> Client:
    """Raises InputError after CONNECT_S: dask itself waits for ever where a connection is taken and nothing said."""
    import distributed

    made: SimpleQueue[Client | Exception] = SimpleQueue()

    def connect() -> None:
        try:
            made.put(distributed.Client(scheduler, timeout=CONNECT_S, set_as_default=False, name="torch-advisor"))
        except Exception as failure:
            made.put(failure)

    threading.Thread(target=connect, daemon=True).start()
    try:
        client = made.get(timeout=CONNECT_S)
    except Empty:
        client = None
    if not isinstance(client, distributed.Client):
        text = f"no Dask scheduler answered within {CONNECT_S:.0f} s; check its address, and that it is running"
        raise InputError(f"{scheduler}: {text}")
    return client


def _check_scheduler(client: Client, scheduler: str, here: dict[str, str]) -> None:
    there = client.sync(client.scheduler.versions)["packages"]["distributed"]
    if there != here["distributed"]:
        raise InputError(f"{scheduler}: {_differ(here, {**here, 'distributed': there}, 'the scheduler')}")


def _differ(here: dict[str, str], there: dict[str, str], who: str) -> str:
    """`torch-advisor 0.2 here and 0.1 in the scheduler; install the same`."""
    names = [name for name in here if here[name] != there.get(name)]
    said = ", ".join(f"{name} {here[name]} here and {there.get(name, 'none')} there" for name in names)
    return f"{who} has other versions: {said}; install the same in both"


def _line(failure: BaseException) -> str:
    return f"{failure}".splitlines()[0] if f"{failure}" else type(failure).__name__


@dataclass(slots=True)
class _Try:
    """A task of a request. worker: where it runs, "" until it does; ends: when its time is over."""

    index: int
    number: int
    future: Future
    worker: str = ""
    ends: float = inf


class _Tasks:
    """All requests as tasks; what becomes of them comes through one queue."""

    def __init__(self, client: Client, scheduler: str, hello: bytes, requests: Sequence[bytes], limit_s: float) -> None:
        self._client, self._scheduler = client, scheduler
        self._hello, self._requests, self._limit_s = hello, requests, limit_s
        self._tries: dict[str, _Try] = {}
        # The key of a task that is done, or what one told of itself.
        self._heard: SimpleQueue[str | dict[str, Any]] = SimpleQueue()
        self._last_sign = time.monotonic()

    def answers(self, topic: str) -> Iterator[Answer]:
        """As of the module."""
        self._client.subscribe_topic(topic, lambda event: self._heard.put(event[1]))
        for index in range(len(self._requests)):
            self._submit(index, 1)
        while self._tries:
            try:
                heard = self._heard.get(timeout=max(self._patience_ends() - time.monotonic(), 0.0))
            except Empty:
                yield from self._overdue()
                continue
            self._last_sign = time.monotonic()
            if isinstance(heard, str):
                yield from self._done(heard)
            else:
                yield from self._told(heard)

    def _submit(self, index: int, number: int, workers: Sequence[str] = ()) -> None:
        """A task for a request; workers: those that are to have it as long as there are any of them."""
        key = f"torch-advisor-{uuid.uuid4().hex}"
        future = self._client.submit(
            dask_task.answer,
            self._hello,
            self._requests[index],
            key=key,
            pure=False,
            workers=list(workers) or None,
            allow_other_workers=bool(workers),
        )
        self._tries[key] = _Try(index, number, future)
        future.add_done_callback(lambda _future: self._heard.put(key))

    def _patience_ends(self) -> float:
        """When the time of a task is over, or that of waiting for a worker."""
        running = min((one.ends for one in self._tries.values()), default=inf)
        return running if running < inf else self._last_sign + self._limit_s

    def _overdue(self) -> Iterator[Answer]:
        now = time.monotonic()
        late = [key for key, one in self._tries.items() if one.ends <= now]
        for key in late:
            yield from self._failed(key, f"not read within {self._limit_s:.0f} s; raise --timeout")
        if not late and self._patience_ends() <= now:
            while self._tries:
                _, one = self._tries.popitem()
                yield Answer(one.index, b"", f"no Dask worker took it within {self._limit_s:.0f} s")

    def _told(self, said: dict[str, Any]) -> Iterator[Answer]:
        """A task begins, perhaps again on another worker, or has read more."""
        one = self._tries.get(said["key"])
        if one is None:
            return
        if not said["read"]:
            one.worker, one.ends = said["worker"], time.monotonic() + self._limit_s
        yield Answer(one.index, READ + str(said["read"]).encode())

    def _done(self, key: str) -> Iterator[Answer]:
        one = self._tries.get(key)
        if one is None:
            return
        if one.future.status == "cancelled":
            yield from self._failed(key, f"the scheduler {self._scheduler} stopped responding", again=False)
            return
        try:
            data: bytes = one.future.result(timeout=self._limit_s)
        except Exception as failure:
            yield from self._raised(key, failure)
            return
        if data[:1] == OTHER_VERSIONS:
            here = msgspec.msgpack.decode(self._hello, type=Hello).versions
            there = msgspec.msgpack.decode(data[1:], type=dict[str, str])
            raise InputError(f"{self._scheduler}: {_differ(here, there, 'a worker of dask')}")
        yield from self._failed(key, data=data) if data[:1] == FAILED else self._ended(key, data)

    def _raised(self, key: str, failure: Exception) -> Iterator[Answer]:
        """What dask itself says in place of an answer."""
        from distributed import KilledWorker

        if self._client.status != "running":
            yield from self._failed(key, f"the scheduler {self._scheduler} stopped responding", again=False)
        elif isinstance(failure, KilledWorker):
            why = "every Dask worker that took it died, possibly out of memory"
            yield from self._failed(key, why, again=False)
        elif isinstance(failure, ImportError) or "deserialization of the task graph" in f"{failure}":
            why = f"its scheduler or a worker cannot load this torch-advisor ({_line(failure)})"
            raise InputError(f"{self._scheduler}: {why}; install the same version there") from failure
        else:
            yield from self._failed(key, f"{type(failure).__name__}: {_line(failure)}")

    def _failed(self, key: str, why: str = "", data: bytes = b"", *, again: bool = True) -> Iterator[Answer]:
        """Another worker tries once more where there is one; else this is the answer."""
        one = self._tries[key]
        others = [] if not again or one.number == _TRIES else [name for name in self._workers() if name != one.worker]
        if not others:
            yield from self._ended(key, data, why)
            return
        del self._tries[key]
        self._client.cancel([one.future])
        self._submit(one.index, one.number + 1, others)

    def _ended(self, key: str, data: bytes, why: str = "") -> Iterator[Answer]:
        one = self._tries.pop(key)
        yield Answer(one.index, data, why)

    def _workers(self) -> list[str]:
        """Addresses of all workers; none where the scheduler does not tell."""
        with suppress(Exception):
            return list(self._client.nthreads())
        return []

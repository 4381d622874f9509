"""Time to read samples and to collate a batch: in the loop's own process, and in workers that were forked from it.

And how long a worker was ready meanwhile and had no core: without that, its time is what a batch needs, however many
workers share the cores.

Forked workers share a small anonymous map with the process that made them: each writes into a slot of its own. Spawned
workers and those of a fork server start from nothing and are not reached; their times are not known and the record says
so.
"""

from __future__ import annotations

import mmap
import os
import statistics
import struct
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from ...steps.vitals import queued_ns
from .pictures import Pictures
from .randomness import Generators, made_anew

# Slots for workers, and times kept by each: 64 x 256 x 24 bytes = 384 KiB, touched only where used.
_SLOTS, _KEPT = 64, 256
_TIMES = struct.Struct("=ddd")  # sample_us, collate_us; of both without a core, -1 where unknown
_HEAD = struct.Struct("=Q")  # how many were written
_SLOT_BYTES = _HEAD.size + _KEPT * _TIMES.size
# Batches whose samples are looked at for random numbers: an augmentation that is tossed for shows in one of them, and
# reading the states of all generators costs some 150 µs each time.
_LOOKED_AT = 4
# Of them, those before which the script's own generators are looked for: some are made as the first sample is read.
_SEARCHED = 2


class Board:
    """Fetch times of all processes that load for this one."""

    def __init__(self) -> None:
        self.memory: Any = None
        self.slot = 0
        self.pid = os.getpid()
        self.begun_ns = 0
        self.fetched_ns = 0
        self.queued_ns: int | None = None  # without a core until the batch was begun
        self.batch = 1
        self.patched = False
        self.looks = self.searches = 0
        self.pictures = Pictures()
        self.generators = Generators()
        self.states: object = None
        self.drawn: bool | None = None  # random numbers were drawn while samples were read in this process
        self.skipped = [0] * _SLOTS  # times in each slot that are of an earlier training loop

    def prepare(self) -> None:
        """Makes the shared map before workers are forked."""
        if self.memory is None:
            self.memory = mmap.mmap(-1, _SLOTS * _SLOT_BYTES)
            self.pictures.prepare()

    def begun(self, fetcher: Any, _value: Any) -> None:
        """The samples of a batch are about to be read."""
        if self.memory is not None:
            self.fetched_ns = 0
            self.begun_ns = perf_counter_ns()
            if self.slot == 0 and not self.patched and os.getpid() != self.pid:
                self._in_worker()
            elif self.slot == 0 and self.looks < _LOOKED_AT and not self.drawn:
                if self.searches < _SEARCHED:
                    self.searches += 1
                    self.generators.find()
                self.states = self.generators.states()
            self.pictures.fetch_begins()
            self.queued_ns = queued_ns() if self.slot else None
            self.begun_ns = perf_counter_ns()

    def fetched(self, fetcher: Any, _value: Any) -> None:
        """The samples are there and about to be collated."""
        if self.begun_ns:
            self.fetched_ns = perf_counter_ns()
            self.pictures.fetch_ends((self.fetched_ns - self.begun_ns) / 1e3)
            if self.states is not None:
                self._look(getattr(fetcher, "dataset", None))
                looking_ns = perf_counter_ns() - self.fetched_ns
                self.begun_ns += looking_ns
                self.fetched_ns += looking_ns

    def _look(self, dataset: Any) -> None:
        """Whether reading these samples has drawn random numbers."""
        self.drawn, self.states = self.states != self.generators.states(), None
        if not self.looks and not self.drawn:
            self.drawn = made_anew(dataset)
        self.looks += 1
        if self.drawn or self.looks == _LOOKED_AT:
            self.generators.forget()

    def delivered(self) -> None:
        """The batch is complete."""
        if self.fetched_ns and self.memory is not None:
            made_ns, queued = perf_counter_ns(), queued_ns() if self.queued_ns is not None else None
            waited_us = (queued - self.queued_ns) / 1e3 if queued is not None and self.queued_ns is not None else -1.0
            self._write((self.fetched_ns - self.begun_ns) / 1e3, (made_ns - self.fetched_ns) / 1e3, waited_us)
        self.begun_ns = self.fetched_ns = 0

    def begin_again(self) -> None:
        """What follows is of another training loop, with samples of its own."""
        if self.memory is not None:
            self.skipped = [_HEAD.unpack_from(self.memory, slot * _SLOT_BYTES)[0] for slot in range(_SLOTS)]
        # One search, which takes some ten milliseconds: the second would lie in a step that is timed.
        self.looks, self.searches, self.drawn, self.states = 0, _SEARCHED - 1, None, None

    def in_child(self) -> None:
        """In a forked process: it writes to another slot, if it turns out to be a loader worker."""
        self.begun_ns = self.fetched_ns = 0

    def _in_worker(self) -> None:
        """Finds this worker's slot, and hears of complete batches by their being put into the queue."""
        self.patched = True
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        if info is None or info.id + 1 >= _SLOTS:
            self.memory = None
            self.pictures.leave()
            return
        self.slot = info.id + 1
        self.pictures.begin_process(self.slot)
        from multiprocessing import queues

        kind: Any = queues.Queue
        kind.put = self._putting(kind.put)

    def _putting(self, put: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.delivered()
            return put(*args, **kwargs)

        return wrapped

    def _write(self, *times: float) -> None:
        base = self.slot * _SLOT_BYTES
        (count,) = _HEAD.unpack_from(self.memory, base)
        _TIMES.pack_into(self.memory, base + _HEAD.size + (count % _KEPT) * _TIMES.size, *times)
        _HEAD.pack_into(self.memory, base, count + 1)

    def read(self) -> list[tuple[float, float]]:
        """(samples_us, collate_us) of every kept batch."""
        return [(samples_us, collate_us) for slot in range(_SLOTS) for samples_us, collate_us, _ in self._kept(slot)]

    def _kept(self, slot: int) -> list[tuple[float, float, float]]:
        """The times of a slot."""
        if self.memory is None:
            return []
        base = slot * _SLOT_BYTES
        (count,) = _HEAD.unpack_from(self.memory, base)
        kept = range(max(self.skipped[slot], count - _KEPT), count)
        return [_TIMES.unpack_from(self.memory, base + _HEAD.size + (at % _KEPT) * _TIMES.size) for at in kept]

    def on_a_core(self) -> float | None:
        """The median time of a worker to make a batch, less what it waited for a core, µs; None where unknown."""
        every = [one for slot in range(1, _SLOTS) for one in self._kept(slot)]
        known = [samples_us + collate_us - waited_us for samples_us, collate_us, waited_us in every if waited_us >= 0]
        return statistics.median(known) if known else None

    def per_worker(self) -> list[float]:
        """The median time to make a batch of each worker that made some, µs; of the loop's own process nothing."""
        every = (self._kept(slot) for slot in range(1, _SLOTS))
        return [
            statistics.median(samples_us + collate_us for samples_us, collate_us, _ in kept) for kept in every if kept
        ]

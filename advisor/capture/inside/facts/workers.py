"""Time to read samples and to collate a batch: in the loop's own process, and in workers that were forked from it.

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

from .pictures import Pictures
from .randomness import Generators, made_anew

# Slots for workers, and times kept by each: 64 x 256 x 16 bytes = 256 KiB, touched only where used.
_SLOTS, _KEPT = 64, 256
_PAIR = struct.Struct("=dd")  # sample_us, collate_us
_HEAD = struct.Struct("=Q")  # how many were written
_SLOT_BYTES = _HEAD.size + _KEPT * _PAIR.size
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
        self.batch = 1
        self.patched = False
        self.looks = 0
        self.pictures = Pictures()
        self.generators = Generators()
        self.states: object = None
        self.drawn: bool | None = None  # random numbers were drawn while samples were read in this process

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
                if self.looks < _SEARCHED:
                    self.generators.find()
                self.states = self.generators.states()
            self.pictures.fetch_begins()
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
            self._write((self.fetched_ns - self.begun_ns) / 1e3, (perf_counter_ns() - self.fetched_ns) / 1e3)
        self.begun_ns = self.fetched_ns = 0

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

    def _write(self, sample_us: float, collate_us: float) -> None:
        base = self.slot * _SLOT_BYTES
        (count,) = _HEAD.unpack_from(self.memory, base)
        _PAIR.pack_into(self.memory, base + _HEAD.size + (count % _KEPT) * _PAIR.size, sample_us, collate_us)
        _HEAD.pack_into(self.memory, base, count + 1)

    def read(self) -> list[tuple[float, float]]:
        """(samples_us, collate_us) of every kept batch."""
        found: list[tuple[float, float]] = []
        if self.memory is None:
            return found
        for slot in range(_SLOTS):
            base = slot * _SLOT_BYTES
            (count,) = _HEAD.unpack_from(self.memory, base)
            for place in range(min(count, _KEPT)):
                found.append(_PAIR.unpack_from(self.memory, base + _HEAD.size + place * _PAIR.size))
        return found

    def per_worker(self) -> list[float]:
        """The median time to make a batch of each worker that made some, µs; of the loop's own process nothing."""
        found: list[float] = []
        for slot in range(1, _SLOTS) if self.memory is not None else ():
            base = slot * _SLOT_BYTES
            kept = min(_HEAD.unpack_from(self.memory, base)[0], _KEPT)
            if kept:
                pairs = [
                    _PAIR.unpack_from(self.memory, base + _HEAD.size + place * _PAIR.size) for place in range(kept)
                ]
                found.append(statistics.median(map(sum, pairs)))
        return found

"""A second process that decodes slices beside the first: shared memory carries the text there and the columns back.

The parent starts `python -m advisor.trace.helper FD` and writes the number of a slot and a length; the helper answers
with the slot and the length of the pickled result, or 0 when the slice is not plain: the parent then reads it itself.
Nothing depends on the helper: where it cannot be started, or ends early, the parent does all the work.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import struct
import subprocess
import sys
import tempfile
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from advisor.trace.allocator import keep_freed_memory, numpy_environment
from advisor.trace.extract import Columns, extract
from advisor.trace.numbers import TooLargeError
from advisor.trace.schema import decoder
from advisor.trace.store import Store
from advisor.trace.tables import Table, Tables

MESSAGE = struct.Struct("<II")
# Two slots keep the helper busy while the parent decodes a slice of its own.
SLOTS = 2
# A slice is one block of 1 MB and what was left of the block before; its columns take about a third of it.
SLOT_BYTES = 4 << 20
REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TooLargeError)
# Table of a file -> the column that indexes it.
TABLES = {
    "names": "name",
    "threads": "thread",
    "dims": "dims",
    "dtypes": "dtypes",
    "strides": "strides",
    "values": "values",
    "stacks": "stack",
    "collectives": "collective",
    "waits": "waited",
}


class Helper:
    """The parent's end. `free` slots take slices; `results` gives what has come back."""

    def __init__(self) -> None:
        """Starts the process. Raises OSError where that cannot be done."""
        descriptor = _shared_file()
        try:
            os.truncate(descriptor, 2 * SLOTS * SLOT_BYTES)
            self._memory = mmap.mmap(descriptor, 2 * SLOTS * SLOT_BYTES)
            # -P: a file named advisor.py in the working folder must not be taken for this package.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "advisor.trace.helper", str(descriptor)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[descriptor],
                env=numpy_environment(),
                bufsize=0,
            )
        finally:
            os.close(descriptor)
        self.free = list(range(SLOTS))
        self.busy: dict[int, tuple[int, int]] = {}
        self.dropped: dict[str, int] = {}
        self._maps: dict[str, npt.NDArray[np.int32]] = {name: np.array([-1], np.int32) for name in TABLES}

    def give(self, index: int, piece: bytes) -> bool:
        """Hands over the slice with that number; False where it does not fit or nobody takes it."""
        if not self.free or len(piece) > SLOT_BYTES or self._process.stdin is None:
            return False
        slot = self.free.pop()
        at = slot * SLOT_BYTES
        self._memory[at : at + len(piece)] = piece
        try:
            self._process.stdin.write(MESSAGE.pack(slot, len(piece)))
        except OSError:
            return False
        self.busy[slot] = (index, len(piece))
        return True

    def results(self, tables: Tables, wait: bool = False) -> list[tuple[int, tuple[Columns, Columns] | bytes]]:
        """Finished slices by number: their columns, or their text where the helper could not decode it."""
        done: list[tuple[int, tuple[Columns, Columns] | bytes]] = []
        while self.busy and self._process.stdout is not None:
            if not (wait or select.select([self._process.stdout], [], [], 0)[0]):
                break
            message = self._process.stdout.read(MESSAGE.size)
            if len(message) < MESSAGE.size:  # it is gone: its slices come back as text
                done += [(index, self._text(slot, length)) for slot, (index, length) in self.busy.items()]
                self.busy, self.free = {}, []
                break
            slot, length = MESSAGE.unpack(message)
            index, size = self.busy.pop(slot)
            self.free.append(slot)
            done.append((index, self._columns(slot, length, tables) if length else self._text(slot, size)))
        return done

    def _text(self, slot: int, length: int) -> bytes:
        return self._memory[slot * SLOT_BYTES : slot * SLOT_BYTES + length]

    def _columns(self, slot: int, length: int, tables: Tables) -> tuple[Columns, Columns]:
        at = (SLOTS + slot) * SLOT_BYTES
        complete, memory, fresh, labels, self.dropped, raws = pickle.loads(self._memory[at : at + length])
        for name, values in fresh.items():
            table: Table = getattr(tables, name)
            added = np.array([table[value] for value in values], np.int32)
            # The last entry stands for -1, absent, which indexes it from behind.
            self._maps[name] = np.concatenate((self._maps[name][:-1], added, self._maps[name][-1:]))
        for name, column in TABLES.items():
            if column in complete:
                complete[column] = self._maps[name][complete[column]]
        tables.thread_names.update(labels)
        for raw in raws:
            tables.categories[raw]
        return complete, memory

    def close(self) -> None:
        """Ends the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process.kill()
        self._process.wait()
        self._memory.close()


def in_order_of_sight(events: Store, tables: Tables) -> None:
    """Numbers texts in the order of the file, as one process does: two meet them in an order that chance decides."""
    for name, column in TABLES.items():
        ids, table = events.values(column), getattr(tables, name)
        texts = [text for text, index in table.items() if index >= 0]
        if ids is None or not texts:
            continue
        first = np.full(len(texts) + 1, len(ids))  # the last entry takes what is absent, -1
        first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # the earliest row comes last and stays
        order = np.argsort(first[:-1], kind="stable")
        if (order[1:] > order[:-1]).all():
            continue
        rank = np.append(np.argsort(order), -1)  # what is absent indexes it from behind
        ids[:] = rank[ids]
        numbered = type(table)()
        for index in order.tolist():
            numbered[texts[index]]
        setattr(tables, name, numbered)


def _shared_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("advisor-slices")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def serve(descriptor: int) -> None:
    """The helper's end: decodes slices until the parent closes the pipe."""
    memory = memoryview(mmap.mmap(descriptor, 2 * SLOTS * SLOT_BYTES))
    tables, decode = Tables(), decoder(exact=False)
    sent = {name: len(getattr(tables, name)) for name in TABLES}
    while len(message := sys.stdin.buffer.read(MESSAGE.size)) == MESSAGE.size:
        slot, length = MESSAGE.unpack(message)
        answer = _answer(memory[slot * SLOT_BYTES : slot * SLOT_BYTES + length], decode, tables, sent)
        at = (SLOTS + slot) * SLOT_BYTES
        if len(answer) > SLOT_BYTES:
            answer = b""
        elif answer:
            sent = {name: len(getattr(tables, name)) for name in TABLES}
        memory[at : at + len(answer)] = answer
        sys.stdout.buffer.write(MESSAGE.pack(slot, len(answer)))
        sys.stdout.buffer.flush()


def _answer(piece: memoryview, decode: Any, tables: Tables, sent: dict[str, int]) -> bytes:
    """The pickled columns of a slice with what is new in the tables; empty where the slice is not plain."""
    try:
        complete, memory = extract(decode.decode(piece), tables)
    except REFUSED:
        return b""
    fresh = {name: list(islice(getattr(tables, name), size, None)) for name, size in sent.items()}
    raws = list(tables.categories)
    return pickle.dumps((complete, memory, fresh, tables.thread_names, tables.dropped, raws), protocol=5)


if __name__ == "__main__":
    import gc

    gc.disable()
    keep_freed_memory()
    serve(int(sys.argv[1]))

"""Reads a trace file into a `Trace`: `load(path)`, and `read_bytes(data, path)` for JSON that is already in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from advisor.trace.events import Trace
from advisor.trace.helper import Helper
from advisor.trace.kineto import read_blocks
from advisor.trace.source import BLOCK_BYTES, Progress, open_source

# Below this a second process costs more CPU time than it saves waiting: beside one other job, 203 MB took 1.8 s without
# it and 2.1 s with it. Packed files are 9 to 29 times smaller than their text.
HELPED_BYTES = 256 << 20
HELPED_PACKED_BYTES = 24 << 20


def load(path: str | PathLike[str], progress: Progress | None = None) -> Trace:
    """The trace in a file: plain, gzipped or zipped (told by its first bytes, not its name).

    progress: called with (bytes read so far, bytes in all) of the file as it lies on disk.
    Raises InputError, one line, for a file that cannot be read or holds no trace.
    """
    with open_source(Path(path), progress) as source, _helper(source.size, source.packed) as helper:
        return read_blocks(source.blocks(), source.name, lambda: source.cut_short, helper)


def read_bytes(data: bytes, path: str) -> Trace:
    """The trace in JSON text. `path` only names it in messages. Raises InputError where it is no trace."""
    return read_blocks((data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)), path)


@contextmanager
def _helper(size: int, packed: bool) -> Iterator[Helper | None]:
    """A second process for large files where a second core is free to use; None otherwise."""
    if size < (HELPED_PACKED_BYTES if packed else HELPED_BYTES) or _cores() < 2:
        yield None
        return
    try:
        helper = Helper()
    except (OSError, ValueError):
        yield None
        return
    try:
        yield helper
    finally:
        helper.close()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
